"""The error that a client library tells of in headers of the message: ours by name, else the library's.

Spring: RepublishMessageRecoverer. NServiceBus: FaultsHeaderKeys; its StackTrace is the whole of Exception.ToString().
MassTransit: MessageHeaders. What anybody may write is `x-error-type`, `x-error-message` and `x-error-frame`.
"""

from collections.abc import Callable
from typing import Final

from dlx_router.core.declaration import error_of

_STACK: Final = "x-exception-stacktrace"
_NSERVICEBUS: Final = "NServiceBus.ExceptionInfo."
_MASSTRANSIT: Final = "MT-Fault-"
# Member of an error → what it may be made of; the first that says something is taken.
MADE_OF: Final = {
    "type": ("x-error-type", _STACK, f"{_NSERVICEBUS}ExceptionType", f"{_MASSTRANSIT}ExceptionType"),
    "message": ("x-error-message", "x-exception-message", f"{_NSERVICEBUS}Message", f"{_MASSTRANSIT}Message"),
    "frame": ("x-error-frame", _STACK, f"{_NSERVICEBUS}StackTrace", f"{_MASSTRANSIT}StackTrace"),
}
NAMES: Final = frozenset(name.encode() for names in MADE_OF.values() for name in names)
_STACKS: Final = frozenset(MADE_OF["frame"][1:])


def told(header: Callable[[str], str | None]) -> dict[str, str] | None:
    """{type, message, frame} without what is not known; None where no header tells of an error."""
    kind, message, frame = (_first(member, names, header) for member, names in MADE_OF.items())
    return error_of(kind, message, frame)


def _first(member: str, names: tuple[str, ...], header: Callable[[str], str | None]) -> str | None:
    texts = (_part(member, name, header(name)) for name in names)
    return next((text for text in texts if text), None)


def _part(member: str, name: str, text: str | None) -> str | None:
    if text is None or name not in _STACKS:
        return text
    return first_frame(text) if member == "frame" else innermost_type(text)


def innermost_type(trace: str) -> str | None:
    """Of a Java stack trace: what the last "Caused by" names, or its first line."""
    head = next(iter(_innermost(trace)), "").strip()
    return None if head.startswith("at ") else head.partition(":")[0].strip() or None


def first_frame(trace: str) -> str | None:
    """Where the innermost error was raised, of a stack trace of Java or .NET; None where it tells no frame."""
    lines = (line.strip() for line in _innermost(trace))
    return next((line.removeprefix("at ") for line in lines if line.startswith("at ")), None)


def _innermost(trace: str) -> list[str]:
    """Java tells causes last; .NET tells the frames of the innermost error first."""
    _, _, cause = trace.rpartition("Caused by: ")
    return cause.splitlines()
