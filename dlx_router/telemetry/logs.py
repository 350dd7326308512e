"""Structured logs that state the fate of letters. Normal work logs nothing; credentials never appear.

Lines of libraries take the same way: whatever leaves is cleaned, exceptions included. A line about letters says what
becomes of them: `log.warning("session.ended", vhost=…, fate="unsettled letters are still in their queues")`.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog
from structlog.typing import Processor

from dlx_router.core.printable import HIDDEN, printable, printable_lines, redacted
from dlx_router.telemetry import faults

LOGGER: Final = "dlx_router"
# They report to us by exceptions, which we log; their own lines would say all twice, or each request.
_QUIET: Final = ("aio_pika", "aiormq", "httpx", "httpcore", "opentelemetry", "urllib3", "uvicorn")
_MAX_KEYS: Final = 1000
MAX_CHARS: Final = 4096  # of one value: an error may quote a whole header
_LAID_OUT: Final = frozenset({"exception", "stack"})
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|authorization|^key$", re.IGNORECASE)

log = structlog.get_logger(LOGGER)


def configure(form: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Log to stderr as `json` or `text`; `auto` is text on a terminal. Call once, before the first line."""
    out = stream or sys.stderr  # None where it was closed
    terminal = out is not None and out.isatty()
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([structlog.processors.format_exc_info] if level.lower() == "debug" else [_without_traceback]),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    text = form == "text" or (form == "auto" and terminal)
    json = structlog.processors.JSONRenderer(ensure_ascii=False)
    last = structlog.dev.ConsoleRenderer(colors=terminal) if text else json
    steps: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _clean,
        *([_known] if text else []),
        last,
    ]
    handler = logging.NullHandler() if out is None else logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=steps, foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    quieten()


def take_faults() -> None:
    """From now on the log has what nobody foresaw, each in a line; the process is ours alone."""
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False  # that the log cannot be written cannot be told by it
    faults.install(lambda message, error: log.error("router.fault", cause=message, exc_info=error))


def _without_traceback(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """An exception in one line: what it is, and where it came from."""
    given = event.pop("exc_info", None)
    error = given[1] if isinstance(given, tuple) else sys.exc_info()[1] if given is True else given
    if isinstance(error, BaseException):
        event.update(error=faults.kind_and_text(error), at=faults.place(error), now=faults.ADVICE)
    return event


def quieten() -> None:
    """Let libraries say by exceptions only what we tell anyway; for a command that logs nothing, this alone."""
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _clean(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The last step before rendering: nothing secret is in any value, however deep, and nothing that is no text."""
    return {key: _cleaned(key, value) for key, value in event.items()}


def _known(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For people: what is not known is not told. Programs get a null."""
    return {key: value for key, value in event.items() if value is not None}


def _cleaned(key: str, value: object) -> object:
    if _SECRET.search(key):
        return HIDDEN
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {printable(str(name)): _cleaned(str(name), inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_cleaned("", inner) for inner in value]
    text = redacted(str(value))
    if key in _LAID_OUT:  # what an exception says may have lines of its own: none begins as a line of ours does
        return printable_lines(text).replace("\n", "\n  | ")
    return printable(text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…")


class Once:
    """Says a thing when it changes, and again when it is over; keyed by what it is about."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}  # hashes: keys and errors may be as long as a header

    def warn(self, key: str, event: str, **fields: object) -> None:
        """Log unless the same was said about this key last."""
        about, what = hash(key), hash(f"{event} {fields.get('cause', '')} {fields.get('error', '')}")
        if self._said.get(about) == what:
            return
        if len(self._said) >= _MAX_KEYS and about not in self._said:
            self._said.pop(next(iter(self._said)))  # the oldest may be said again
        self._said[about] = what
        log.warning(event, **fields)

    def healed(self, key: str, event: str, **fields: object) -> None:
        """Log that it is over, where something was said."""
        if self._said.pop(hash(key), None) is not None:
            log.info(event, **fields)
