"""What people without a token get: the status of one shared group, from memory for some seconds, and no word more.

However many ask, the index is asked for a twentieth of the time at most; an error tells nothing of this router.
"""

import time
from collections import deque
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from dlx_router.admin.api.answers import Answer, refused
from dlx_router.admin.api.asgi import OK, Taken, send_answer
from dlx_router.admin.api.asking import asked
from dlx_router.admin.api.context import Context
from dlx_router.config.api_access.tokens import Caller, Role, caller
from dlx_router.core import status_pages
from dlx_router.core.status_pages import ACTIONS, TOKEN, SharedPage
from dlx_router.index.hours import HOURS, Course
from dlx_router.index.reader import Reader
from dlx_router.telemetry.wall_clock import wall_ms

PREFIX: Final = "/api/v1/status/"
NOTHING: Final = "there is no such page"
LATER: Final = "not now; ask again"
AT_ONCE: Final = 4  # of the API's 32
KEPT_S: Final = 2.0
MOST_REVOKED: Final = 1_000  # each by an operator
LONGEST_S: Final = 10.0  # after that a link that was revoked elsewhere shows nothing, however long a question takes
_SHARE: Final = 20
_NOT_FOUND: Final = 404
_LATER: Final = 503
PUBLIC: Final[Caller] = caller("(public page)", Role.VIEWER, match="")  # no queue has this name: it sees none
_FORGOTTEN: Final = {"state": "forgotten", "first_ms": None, "last_ms": None, "lying": 0, "deaths": 0}
Kept = dict[tuple[str, str], tuple[float, Any]]


def is_asked(scope: Scope) -> bool:
    """Whether this is a question that needs no token: exactly the shape of a link of ours."""
    path: str = scope["path"]
    is_link = path.startswith(PREFIX) and TOKEN.fullmatch(path.removeprefix(PREFIX)) is not None
    return is_link and scope["method"] == "GET"


async def answer(app: Any, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ANN401 - an ASGI app
    """What the app says where that is a status; of anything else only that there is none, or none now."""
    taken = Taken()
    await app(scope, receive, taken)
    answered = taken.answered()
    if answered.status == OK:
        await send_answer(answered, send)
    else:
        await refusal(answered.status)(scope, receive, send)


def refusal(status: int) -> Answer:
    """An error, without its reason."""
    if status == _NOT_FOUND:
        return refused(_NOT_FOUND, NOTHING)
    return refused(_LATER, LATER, retry_after_s=2)


def forget(given: Context, vhost: str) -> None:
    """A page of this vhost was shared or revoked: the next question is answered by what the index has."""
    kept = _kept(given)
    for key in [key for key in kept if key[0] == vhost]:
        del kept[key]


def revoke(given: Context, digest: str) -> None:
    """The journal has it: this page shows nothing from now on, however far the index is behind."""
    _revoked(given).append(digest)


async def status(given: Context, vhost: str, digest: str) -> dict[str, Any] | None:
    """What the page with this digest shows; None: this vhost has none. Some seconds old at most."""
    pages: status_pages.Left = await _remembered(given, (vhost, ""), lambda reader: _left(reader, vhost))
    page = pages.pages.get(digest)
    if page is None or digest in _revoked(given):
        return None
    document: dict[str, Any] = await _remembered(given, (vhost, digest), lambda reader: _status(reader, vhost, page))
    return document


async def _remembered(given: Context, key: tuple[str, str], question: Any) -> Any:  # noqa: ANN401 - a question to the index
    kept, began = _kept(given), time.monotonic()
    until, known = kept.get(key, (0.0, None))
    if began < until:
        return known
    for old in [old for old, (until, _) in kept.items() if until < began]:
        del kept[old]
    known = await asked(given, question)
    now = time.monotonic()
    kept[key] = (now + min(max(KEPT_S, (now - began) * _SHARE), LONGEST_S), known)
    return known


def _revoked(given: Context) -> deque[str]:
    """Digests, the last of them; what the index has read of these is not known here."""
    revoked: deque[str] = given.extras.setdefault("revoked_pages", deque(maxlen=MOST_REVOKED))
    return revoked


def _kept(given: Context) -> Kept:
    """By vhost and digest; at most what a vhost may share, and its list of pages by an empty digest."""
    kept: Kept = given.extras.setdefault("public_status", {})
    return kept


def _left(reader: Reader, vhost: str) -> status_pages.Left:
    return status_pages.left(reader.audits_of(vhost, ACTIONS, 0))


def _status(reader: Reader, vhost: str, page: SharedPage) -> dict[str, Any]:
    made_ms = wall_ms()
    row = reader.group(page.group, lambda its_vhost, queue: (its_vhost, queue) == (vhost, page.queue))
    course = Course([0] * HOURS, is_part=False) if row is None else reader.deaths_by_hour(page.group, made_ms)
    known = row or {"reason": page.reason, **_FORGOTTEN}
    says_error = row is not None and page.shows_error
    return {
        "queue": page.queue,
        **{name: known[name] for name in ("reason", "state", "first_ms", "last_ms", "lying", "deaths")},
        "error_type": known["error_type"] if says_error else None,
        "message": known["message"] if says_error else None,
        **course._asdict(),
        "note": page.note,
        "made_ms": made_ms,
    }
