"""Where the management API is, and what is said where it does not answer as it should: where, what, what now."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

import httpx

from dlx_router.wire.address import places

NOT_FOUND: Final = 404
ASK: Final = "is MANAGEMENT_URL the address of RabbitMQ's management plugin (port 15672, or 15671), and is it enabled?"
_SAYS: Final = {
    401: "user or password is wrong, or the user may not see this; `dlx-router permissions --for` prints who may",
    403: "the user may not see this; give it the tag monitoring, or management and access to the vhost",
    NOT_FOUND: "no such vhost or path; look at MANAGEMENT_URL and VHOSTS",
}


P = ParamSpec("P")
T = TypeVar("T")


class ManagementError(Exception):
    """The API did not answer as it should; says where, what, and what now, never credentials."""


class RefusedError(ManagementError):
    """400: the broker does not take what it was given."""


class NotThereError(ManagementError):
    """404: no such vhost, queue or path."""


def shaped(ask: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same question; an answer of another form than RabbitMQ's is a ManagementError too.

    A node that starts answers 200 with nothing, with a part, or with something else.
    """

    @functools.wraps(ask)
    async def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await ask(*args, **kwargs)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"{type(error).__name__} {error}"
            raise ManagementError(
                f"the management API did not answer as it should ({reason}); a node may be starting, else look at "
                f"MANAGEMENT_URL"
            ) from None

    return asked


def part(name: str) -> str:
    """A name as a part of a path. ManagementError for those that no path has: it would lead to something else."""
    if name in {"", ".", ".."}:
        raise ManagementError(f"the management API cannot be asked about anything that is called {name!r}")
    return quote(name, safe="", errors="surrogateescape")


def places_of(url: str) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Where, by each host, without the credentials; and those."""
    try:
        address = places(url)
    except ValueError:
        raise ManagementError("MANAGEMENT_URL cannot be read; write https://user:password@host:15671") from None
    return address.where, (address.user, address.password)


def why(answer: httpx.Response) -> str:
    """What the status means here, with the broker's own reason; of its words only a line."""
    try:
        reason = " ".join(str(answer.json().get("reason", "")).split())[:200]
    except (ValueError, AttributeError):
        reason = ""
    return f"{f' ({reason})' if reason else ''}, {_SAYS.get(answer.status_code, 'look at its log')}"
