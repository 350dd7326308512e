"""What every path answers with: JSON that survives any name, and errors of one shape."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from fastapi import HTTPException
from pydantic import BaseModel
from starlette.responses import Response

from dlx_router.core.leases import Ended
from dlx_router.core.nested_json import shallow

ELSEWHERE: Final = "dlx_router.elsewhere"  # in a scope: NotLed


class Error(BaseModel):
    """What went wrong, and what to do now."""

    error: str
    problems: list[str] = []


class Answer(Response):
    """JSON in ASCII: a queue's name may hold bytes that are no text."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:  # noqa: ANN401 - what JSON can hold
        try:
            text = _encode(content)
        except (ValueError, RecursionError):  # what JSON lacks or nobody can nest costs itself, not the whole answer
            text = _encode(_finite(json.loads(json.dumps(shallow(content), default=_plain))))
        super().__init__(text, status_code, {"cache-control": "no-store", **(headers or {})})


def _encode(content: Any) -> str:  # noqa: ANN401 - what JSON can hold
    return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_plain)


def _finite(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    return [*map(_finite, value)] if isinstance(value, list) else value


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, BaseModel):
        return value.model_dump(mode="python", exclude_none=True)
    raise TypeError(type(value).__name__)


def refused(status: int, error: str, *, retry_after_s: int | None = None, problems: list[str] | None = None) -> Answer:
    """An error's answer."""
    headers = {"retry-after": str(retry_after_s)} if retry_after_s is not None else {}
    headers |= {"www-authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004 - HTTP's number, as in RFC 9110
    return Answer({"error": error, "problems": problems or []}, status, headers)


def refuse(status: int, error: str, *, retry_after_s: int | None = None) -> HTTPException:
    """To be raised inside a path."""
    headers = None if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return HTTPException(status, error, headers)


class Takes(NamedTuple):
    """What an answer may take of whoever hands the request on: bytes, and time, where the request is to wait."""

    waits_s: float = 0.0
    most_bytes: int = 8 << 20  # as much as the console reads


PLAIN: Final = Takes()
LETTERS_BYTES: Final = 256 << 20  # of letters as they lie there: RabbitMQ takes 128 MiB, in base64 a third more


class NotLed(HTTPException):
    """Another router leads the vhost, and nothing was changed here: leader_proxy.py asks there."""

    def __init__(self, vhost: str, reason: str, takes: Takes = PLAIN) -> None:
        super().__init__(503, reason, {"retry-after": "2"})
        self.vhost, self.takes = vhost, takes


class Over(Error):
    """A lease that has ended; null: nobody remembers how."""

    ended: Ended | None


_SAYS: Final = {
    401: "no token, or not a valid one",
    403: "the token's role or scope does not allow it",
    404: "there is no such thing",
    409: "it is in the way of something else",
    410: "the lease has ended; `ended` says how",
    413: "the request is too large",
    414: "the address is too long to be handed to the router that leads",
    422: "the request cannot be understood",
    429: "too many requests; wait as Retry-After says",
    503: "not here or not now; see Retry-After",
}
EVERYWHERE: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Error, "description": _SAYS[status]} for status in (401, 403, 404, 413, 414, 422, 429, 503)
}
LEASES: Final[dict[int | str, dict[str, Any]]] = {410: {"model": Over, "description": _SAYS[410]}}
CONFLICT: Final[dict[int | str, dict[str, Any]]] = {409: {"model": Error, "description": _SAYS[409]}}
