"""The error that a client library tells of in headers of the message: ours by name, else the library's.

Spring: RepublishMessageRecoverer; its x-exception-message is that of the first cause, so type, message and frame are
all read from the innermost exception of the stack trace. NServiceBus: FaultsHeaderKeys; its StackTrace is the whole of
Exception.ToString(). MassTransit: MessageHeaders. What anybody may write is `x-error-type`, `x-error-message` and
`x-error-frame`.
"""

import re
from collections.abc import Callable
from typing import Final

from dlx_router.core.declaration import error_of

_STACK: Final = "x-exception-stacktrace"
_NSERVICEBUS: Final = "NServiceBus.ExceptionInfo."
_MASSTRANSIT: Final = "MT-Fault-"
# Member of an error → what it may be made of; the first that says something is taken.
MADE_OF: Final = {
    "type": ("x-error-type", _STACK, f"{_NSERVICEBUS}ExceptionType", f"{_MASSTRANSIT}ExceptionType"),
    "message": ("x-error-message", _STACK, "x-exception-message", f"{_NSERVICEBUS}Message", f"{_MASSTRANSIT}Message"),
    "frame": ("x-error-frame", _STACK, f"{_NSERVICEBUS}StackTrace", f"{_MASSTRANSIT}StackTrace"),
}
NAMES: Final = frozenset(name.encode() for names in MADE_OF.values() for name in names)
_CAUSE: Final = re.compile("^Caused by: ", re.MULTILINE)  # that of a suppressed exception is indented
_STACKS: Final = frozenset(MADE_OF["frame"][1:])


def told(header: Callable[[str], str | None]) -> dict[str, str] | None:
    """{type, message, frame} without what is not known; None where no header tells of an error."""
    kind, message, frame = (_first(member, names, header) for member, names in MADE_OF.items())
    return error_of(kind, message, frame)


def _first(member: str, names: tuple[str, ...], header: Callable[[str], str | None]) -> str | None:
    for name in names:
        text = header(name)
        if text and name in _STACKS:
            if member == "message" and innermost(text)[0]:
                return innermost(text)[1]  # even None: another header has the message of another exception
            text = first_frame(text) if member == "frame" else innermost(text)[0] if member == "type" else None
        if text:
            return text
    return None


def innermost(trace: str) -> tuple[str | None, str | None]:
    """Type and message of the innermost exception of a Java stack trace; None for what it lacks."""
    head: list[str] = []
    for line in _innermost(trace):
        if line.lstrip().startswith(("at ", "... ", "Suppressed: ")):
            break
        head.append(line)
    kind, _, message = "\n".join(head).strip().partition(":")
    return kind.strip() or None, message.strip() or None


def first_frame(trace: str) -> str | None:
    """Where the innermost error was raised, of a stack trace of Java or .NET; None where it tells no frame."""
    lines = (line.strip() for line in _innermost(trace))
    return next((line.removeprefix("at ") for line in lines if line.startswith("at ")), None)


def _innermost(trace: str) -> list[str]:
    """Java tells causes last; .NET tells the frames of the innermost error first."""
    return _CAUSE.split(trace)[-1].splitlines()
