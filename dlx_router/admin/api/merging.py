"""Answers of several routers to one question, put together: each leads other vhosts.

A list's order is the same as one router's: what happened last comes first. `missing` names the vhosts that nobody could
be asked about, each with the reason.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from dlx_router.admin.api.envelope import Answered

OK: Final = 200
_MISSING: Final = 404
MARK: Final = "~"  # begins a cursor over several routers
SEVERAL: Final = "who leads has changed since the page before; begin with the newest again"
_LATEST: Final = 2**53  # the cursor before the first letter
MOST: Final = 500
USUAL: Final = 100
_NAMED: Final = 10  # copies of a letter
Row = dict[str, Any]


class Unmergeable(Exception):
    """The question cannot be asked of several routers so; says what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one router said."""

    router: str
    answered: Answered

    @property
    def document(self) -> Row:
        """As JSON."""
        document: Row = json.loads(self.answered.body)
        return document


@dataclass(frozen=True, slots=True)
class Merge:
    """`split`: what each router is asked, by its id. `join`: what is answered then."""

    split: Callable[[str, Sequence[str]], dict[str, str]]
    join: Callable[[str, Sequence[Part], dict[str, str]], Answered]


def _same(target: str, routers: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(routers, target)


def _lists(join: Callable[[QueryParams, list[tuple[str, Row]]], Row]) -> Callable[..., Answered]:
    """Of answers that are all right; one that refuses the question refuses it for all."""

    def joined(target: str, parts: Sequence[Part], missing: dict[str, str]) -> Answered:
        refusal = next((part.answered for part in parts if part.answered.status != OK), None)
        if refusal is not None:
            return refusal
        asked = QueryParams(target.partition("?")[2])
        return _answer({**join(asked, [(part.router, part.document) for part in parts]), "missing": missing})

    return joined


def _answer(document: Row) -> Answered:
    return Answered(OK, "application/json", json.dumps(document, separators=(",", ":")).encode())


# -- letters ----------------------------------------------------------------------------------------------------


def _letters_asked(target: str, routers: Sequence[str]) -> dict[str, str]:
    """Each goes on behind its own cursor; one that gave all its letters is asked for none that came since."""
    path, _, query = target.partition("?")
    given = QueryParams(query)
    cursor = given.get("cursor")
    if not cursor:
        return _same(target, routers)
    at = _decoded(cursor)
    if at is None or {*at} != {*routers}:
        raise Unmergeable(SEVERAL)
    asked = {}
    for router in routers:
        rest = [(name, value) for name, value in given.multi_items() if name != "cursor"]
        asked[router] = f"{path}?{urlencode([*rest, ('cursor', at[router])])}"
    return asked


def _letters(asked: QueryParams, parts: list[tuple[str, Row]]) -> Row:
    """Each router's own order is kept, whatever the moments say: a cursor is a place in that order."""
    limit, is_oldest = _number(asked.get("limit"), USUAL), asked.get("order") == "oldest"
    left = {router: deque(document["letters"]) for router, document in parts}
    at = _decoded(asked.get("cursor") or "") or dict.fromkeys(left, 0 if is_oldest else _LATEST)
    page: list[Row] = []
    while len(page) < limit and any(left.values()):
        moments = {router: rows[0]["last_ms"] * (1 if is_oldest else -1) for router, rows in left.items() if rows}
        router = min(moments, key=lambda name: moments[name])
        page.append(left[router].popleft())
        at[router] = page[-1]["cursor"]
    goes_on = any(left.values()) or any(document["next"] is not None for _, document in parts)
    return {"letters": page, "next": _encoded(at) if goes_on else None}


def _encoded(at: dict[str, int]) -> str:
    return MARK + urlsafe_b64encode(json.dumps(at, separators=(",", ":")).encode()).decode().rstrip("=")


def _decoded(cursor: str) -> dict[str, int] | None:
    """None: it is no cursor over several routers."""
    try:
        text = cursor.removeprefix(MARK) if cursor.startswith(MARK) else None
        places = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4))) if text is not None else None
    except (ValueError, RecursionError):
        return None
    is_cursor = isinstance(places, dict) and all(isinstance(place, int) and place >= 0 for place in places.values())
    return places if is_cursor else None


# -- what is put together by its order, or not at all -------------------------------------------------------------


def _groups_asked(target: str, routers: Sequence[str]) -> dict[str, str]:
    """All from the first on, since what is left out is known only when all are beside each other."""
    path, _, query = target.partition("?")
    given = QueryParams(query)
    whole = _number(given.get("offset"), 0) + _number(given.get("limit"), USUAL)
    if whole > MOST:
        raise Unmergeable(f"several routers lead these vhosts: name a vhost to see more than {MOST} groups")
    rest = [(name, value) for name, value in given.multi_items() if name not in {"offset", "limit"}]
    return _same(f"{path}?{urlencode([*rest, ('limit', whole)])}", routers)


def _groups(asked: QueryParams, parts: list[tuple[str, Row]]) -> Row:
    offset, limit = _number(asked.get("offset"), 0), _number(asked.get("limit"), USUAL)
    by = GROUP_ORDERS.get(asked.get("sort") or "last", "last_ms")
    rows = sorted((group for _, document in parts for group in document["groups"]), key=lambda group: -(group[by] or 0))
    page = rows[offset : offset + limit]
    goes_on = len(rows) > offset + limit or any(document["next"] is not None for _, document in parts)
    return {"groups": page, "next": offset + limit if goes_on else None}


GROUP_ORDERS: Final = {"last": "last_ms", "first": "first_ms", "deaths": "deaths", "lying": "lying"}


def _audits(asked: QueryParams, parts: list[tuple[str, Row]]) -> Row:
    limit = _number(asked.get("limit"), USUAL)
    rows = [audit for _, document in parts for audit in document["audits"]]
    rows.sort(key=lambda audit: (audit["ts_ms"], audit["event_id"]), reverse=True)
    goes_on = len(rows) > limit or any(document.get("next") is not None for _, document in parts)
    page = rows[:limit]
    return {"audits": page, "next": page[-1]["cursor"] if goes_on and page else None}


def _queues(_asked: QueryParams, parts: list[tuple[str, Row]]) -> Row:
    documents = [document for _, document in parts]
    signatures = {vhost: counts for document in documents for vhost, counts in document["signatures"].items()}
    return {
        "failed": [queue for document in documents for queue in document["failed"]],
        "lying": [place for document in documents for place in document["lying"]],
        "signatures": signatures,
    }


def _policies(_asked: QueryParams, parts: list[tuple[str, Row]]) -> Row:
    """Each once, those of the higher priority first, as one router has them."""
    rows = {(row["vhost"], row["name"]): row for _, document in parts for row in document["policies"]}
    ordered = sorted(rows.values(), key=lambda row: -row["priority"])
    return {"revision": parts[0][1]["revision"], "policies": ordered}


def _copies(_target: str, parts: Sequence[Part], _missing_vhosts: dict[str, str]) -> Answered:
    """A letter may have died in vhosts of several routers."""
    known = [part for part in parts if part.answered.status == OK]
    if not known:
        return _worst(parts)
    return _answer({"letters": [letter for part in known for letter in part.document["letters"]]})


def copies_in(answers: Sequence[Answered]) -> list[Row]:
    """The copies of a letter that routers tell of."""
    return [copy for answered in answers for copy in json.loads(answered.body)["letters"]]


def which_copy(copies: Sequence[Row]) -> str:
    """What to say where somebody has to choose between them."""
    places = ", ".join(f"{copy['failed_queue']!r} of vhost {copy['vhost']!r}" for copy in copies[:_NAMED])
    by = "queue" if len({copy["vhost"] for copy in copies}) == 1 else "queue and vhost"
    return f"copies of this letter failed in {places}; say which one by {by}"


def _any(_target: str, parts: Sequence[Part], _missing_vhosts: dict[str, str]) -> Answered:
    return next((part.answered for part in parts if part.answered.status == OK), _worst(parts))


def _worst(parts: Sequence[Part]) -> Answered:
    """That it is not known is said only where all say so."""
    return next((part.answered for part in parts if part.answered.status != _MISSING), parts[0].answered)


def _number(text: str | None, usual: int) -> int:
    """A number of the address; what is none is for the paths to refuse."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else usual  # noqa: PLR2004 - more than any list


LISTS: Final = {
    "/api/v1/letters": Merge(_letters_asked, _lists(_letters)),
    "/api/v1/groups": Merge(_groups_asked, _lists(_groups)),
    "/api/v1/audits": Merge(_same, _lists(_audits)),
    "/api/v1/queues": Merge(_same, _lists(_queues)),
}
# Any router knows the policies; which of them are behind the queues of a scope, the indexes know.
LISTS_OF_A_SCOPE: Final = {**LISTS, "/api/v1/policies": Merge(_same, _lists(_policies))}
COPIES: Final = Merge(_same, _copies)
ANY: Final = Merge(_same, _any)
