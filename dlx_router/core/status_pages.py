"""Status pages of groups that operators shared: what is kept of each, its bounds, and what events leave of them.

Guarantees: what is left depends neither on the order of the events nor on how often each comes, and asks no clock: each
link has a digest of its own, and one that was revoked is never valid again. The link itself is in no event.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final

from dlx_router.core import written_down
from dlx_router.core.written_down import number

SHARED: Final = "page.shared"
REVOKED: Final = "page.revoked"
KEPT: Final = "page.kept"  # all of a vhost once more, before the journal forgets them
ACTIONS: Final = (SHARED, REVOKED, KEPT)
MOST: Final = 100  # of a vhost
MAX_NOTE: Final = 500
MAX_BYTES: Final = 4_000  # of one page in the journal
TOKEN_BYTES: Final = 32
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # TOKEN_BYTES in base64, as addresses have it
_LINK: Final = re.compile(r"/status/[^/]+")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TEXTS: Final = ("digest", "group", "queue", "reason", "note", "by")


@dataclass(frozen=True, slots=True)
class SharedPage:
    """One of them. `digest`: of the link's token. `shows_error`: the type of the error and its masked message, too."""

    digest: str
    group: str
    queue: str
    reason: str
    note: str
    shows_error: bool
    by: str
    shared_ms: int

    @property
    def document(self) -> dict[str, Any]:
        """As an event has it."""
        return asdict(self)

    @property
    def size(self) -> int:
        """Its bytes in an event."""
        return len(json.dumps(self.document))


@dataclass(slots=True)
class Left:
    """What events leave, by digest. `told_ms`: when each was last written down."""

    pages: dict[str, SharedPage] = field(default_factory=dict)
    told_ms: dict[str, int] = field(default_factory=dict)

    def of_group(self, group: str) -> list[SharedPage]:
        """Those of a group, the newest first: one, unless two routers led for a moment."""
        its = [page for page in self.pages.values() if page.group == group]
        return sorted(its, key=lambda page: (-page.shared_ms, page.digest))

    def listed(self) -> list[SharedPage]:
        """The newest first."""
        return sorted(self.pages.values(), key=lambda page: (-page.shared_ms, page.digest))


def digest_of(token: str) -> str:
    """What is kept of a token. Its 256 bits of chance cannot be guessed from it, nor tried."""
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def without_token(path: str) -> str:
    """A path as a log may have it."""
    return _LINK.sub("/status/***", path)


def left(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Left:
    """What these events leave: (action, details) of a vhost, in any order. What is no page says nothing."""
    remaining, revoked = Left(), set[str]()
    for action, details in events:
        told_ms = number(details.get("kept_ms"))
        for page in filter(None, map(read, _documents(action, details))):
            if action == REVOKED:
                revoked.add(page.digest)
                continue
            remaining.pages[page.digest] = page
            known_ms = remaining.told_ms.get(page.digest, 0)
            remaining.told_ms[page.digest] = max(known_ms, told_ms, page.shared_ms)
    for digest in revoked & remaining.pages.keys():
        del remaining.pages[digest], remaining.told_ms[digest]
    return remaining


def _documents(action: str, details: Mapping[str, Any]) -> list[Any]:
    if action == KEPT:
        return written_down.listed(details, "pages")
    return [details.get("page")] if action in {SHARED, REVOKED} else []


def read(document: object) -> SharedPage | None:
    """A page as an event has it; None: it is none."""
    if not isinstance(document, dict):
        return None
    texts = [document.get(name) for name in _TEXTS]
    shows_error, shared_ms = document.get("shows_error"), number(document.get("shared_ms"))
    if not all(isinstance(text, str) for text in texts) or not isinstance(shows_error, bool) or not shared_ms:
        return None
    digest, group, queue, reason, note, by = map(str, texts)
    if not _DIGEST.fullmatch(digest) or len(note) > MAX_NOTE:
        return None
    return SharedPage(digest, group, queue, reason, note, shows_error, by, shared_ms)


def renewal(remaining: Left, now_ms: int) -> list[dict[str, Any]]:
    """Details of events that write all of them down once more; none where each was written down within a day."""
    documents = [page.document for page in remaining.listed()]
    return written_down.renewal("pages", documents, remaining.told_ms.values(), now_ms)
