"""Searches that people saved: what is kept of each, its bounds, and what the events of a journal leave of them.

Guarantees: what is left depends neither on the order of the events nor on how often each comes, whatever the clocks of
those who wrote them said; a search that was deleted comes back only where it is saved anew.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from dlx_router.core import written_down
from dlx_router.core.written_down import number

SAVED: Final = "search.saved"
DELETED: Final = "search.deleted"
KEPT: Final = "search.kept"  # all of a vhost once more, before the journal forgets them
ACTIONS: Final = (SAVED, DELETED, KEPT)
MOST: Final = 50  # of a vhost
MAX_BYTES: Final = 2_000  # of one search in the journal
MAX_NAME: Final = 80
MAX_TEXT: Final = 500
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {  # by page: the filters of its list, as the API calls them
    "letters": (
        "q", "vhost", "queue", "group", "state", "reason", "policy", "since_ms", "until_ms", "order",
    ),
    "groups": ("vhost", "queue", "state", "sort"),
}  # fmt: skip
Filter = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """One of them. `saved_ms` tells two that have had one name apart: what was saved later has the greater one."""

    name: str
    page: str
    filter: Filter
    by: str
    saved_ms: int

    @property
    def id(self) -> str:
        """The same for the same name and page."""
        return search_id(self.name, self.page)

    @property
    def document(self) -> dict[str, Any]:
        """As an event has it."""
        return {
            "name": self.name,
            "page": self.page,
            "filter": dict(self.filter),
            "by": self.by,
            "saved_ms": self.saved_ms,
        }

    @property
    def size(self) -> int:
        """Its bytes in an event."""
        return len(_text(self.document))


@dataclass(slots=True)
class Left:
    """What events leave. `told_ms`: when each was last written down; `last_ms`: of the newest save, deleted or not."""

    searches: dict[str, SavedSearch] = field(default_factory=dict)
    told_ms: dict[str, int] = field(default_factory=dict)
    last_ms: dict[str, int] = field(default_factory=dict)

    def saves(self, name: str, page: str, now_ms: int) -> int:
        """The `saved_ms` of a search that is saved now: greater than any before, whatever the clock says."""
        return max(now_ms, self.last_ms.get(search_id(name, page), 0) + 1)

    def listed(self) -> list[SavedSearch]:
        """By page and name, as people look for them."""
        return sorted(self.searches.values(), key=lambda search: (search.page, search.name.casefold(), search.name))


def search_id(name: str, page: str) -> str:
    """What a search is called in addresses: 16 hex digits of its page and name."""
    return blake2b(_text([page, name]), digest_size=8).hexdigest()


def left(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Left:
    """What these events leave: (action, details) of a vhost, in any order. What is no search says nothing."""
    remaining, gone = Left(), dict[str, int]()
    for action, details in events:
        told_ms = number(details.get("kept_ms"))
        for search in filter(None, map(read, _documents(action, details))):
            if action == DELETED:
                gone[search.id] = max(gone.get(search.id, 0), search.saved_ms)
            else:
                _take(remaining, search, max(told_ms, search.saved_ms))
            remaining.last_ms[search.id] = max(remaining.last_ms.get(search.id, 0), search.saved_ms)
    for key in [key for key, known in remaining.searches.items() if known.saved_ms <= gone.get(key, 0)]:
        del remaining.searches[key], remaining.told_ms[key]
    return remaining


def _documents(action: str, details: Mapping[str, Any]) -> list[Any]:
    if action == KEPT:
        return written_down.listed(details, "searches")
    return [details.get("search")] if action in {SAVED, DELETED} else []


def _take(remaining: Left, search: SavedSearch, told_ms: int) -> None:
    """The newer of two; of two that are as new the same one, whichever came first."""
    known = remaining.searches.get(search.id)
    if known is None or (search.saved_ms, _text(search.document)) > (known.saved_ms, _text(known.document)):
        remaining.searches[search.id] = search
    remaining.told_ms[search.id] = max(remaining.told_ms.get(search.id, 0), told_ms)


def read(document: object) -> SavedSearch | None:
    """A search as an event has it; None: it is none, or has a filter that this version would leave out."""
    if not isinstance(document, dict):
        return None
    name, page, asked, by = (document.get(key) for key in ("name", "page", "filter", "by"))
    if not (isinstance(name, str) and isinstance(by, str) and isinstance(asked, dict) and 0 < len(name) <= MAX_NAME):
        return None
    if page not in [*FIELDS] or not all(_is_field(page, key, value) for key, value in asked.items()):
        return None
    saved_ms = number(document.get("saved_ms"))
    return SavedSearch(name, page, asked, by, saved_ms) if saved_ms else None


def _is_field(page: str, key: str, value: object) -> bool:
    if key not in FIELDS[page]:
        return False
    return bool(number(value)) if key.endswith("_ms") else isinstance(value, str) and len(value) <= MAX_TEXT


def renewal(remaining: Left, now_ms: int) -> list[dict[str, Any]]:
    """Details of events that write all of them down once more; none where each was written down within a day."""
    documents = [search.document for search in remaining.listed()]
    return written_down.renewal("searches", documents, remaining.told_ms.values(), now_ms)


def _text(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
