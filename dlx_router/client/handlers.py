"""What the hooks of all libraries share: how an error is declared, and which one it is.

The law of all of them: where a message would be rejected for good because of an exception, its death is declared with
that exception and the message is acked. Where that cannot be done it is rejected as without us, and the log says why.
Nothing else changes: what is acked, given back or tried again by the library stays so, and the exception goes its way.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Optional

from dlx_router.client.declaration import PREFIX, InvalidDeclaration, NotAcked, NotDeclared, Words, error_told
from dlx_router.client.exception import described

REASON: Final = "exception"
WITHIN_S: Final = 10.0
_log: Final = logging.getLogger("dlx_router.client")
Redact = Callable[[dict[str, str]], Optional[Mapping[str, str]]]


@dataclass(frozen=True)
class Settings:
    """How errors of handlers are declared; checked when made.

    `reason`: in policies `application:REASON`. `redact`: is given {type, message, frame} and returns what may be told,
    None for nothing. `prefix`: the router's. `within`: seconds for a declaration, where the library can wait.
    """

    reason: str = REASON
    redact: Redact | None = None
    prefix: str = PREFIX
    within: float = WITHIN_S

    def __post_init__(self) -> None:
        Words(reason=self.reason)
        redact: object = self.redact
        if redact is not None and not callable(redact):
            raise InvalidDeclaration(f"redact {self.redact!r}: it has to be a function")
        within: object = self.within  # callers need not have a type checker
        if not isinstance(within, (int, float)) or not 0 < within < float("inf"):
            raise InvalidDeclaration(f"within {self.within!r}: it has to be seconds, more than 0")

    def told_of(self, error: BaseException, traceback: object = None) -> dict[str, str]:
        """What is declared of it: {type, message, frame}, redacted and cut."""
        return self.redacted(described(error, traceback))

    def redacted(self, details: dict[str, str]) -> dict[str, str]:
        """Nothing but the type where `redact` fails: what it should have hidden must not get out."""
        if self.redact is None:
            return details
        try:
            return error_told(self.redact(dict(details)) or {}) or {}
        except Exception:  # noqa: BLE001 - it is the user's, and what it hides must stay hidden
            _log.exception("redact failed: of an error only its type is declared")
            return {"type": details.get("type", "Exception")}


def in_flight(before: BaseException | None = None) -> Exception | None:
    """The exception that is being handled, if it is another than `before`; to be cancelled is no error."""
    error = sys.exc_info()[1]
    return error if isinstance(error, Exception) and error is not before else None


def not_declared(queue: str | None, error: NotDeclared) -> None:
    """Say in the log that the message is rejected without its error."""
    _log.warning("a message of queue %r is rejected without its error, which could not be declared: %s", queue, error)


def not_acked(queue: str | None, error: NotAcked) -> None:
    """Say in the log that it will come once more."""
    _log.warning("a message of queue %r: %s", queue, error)
