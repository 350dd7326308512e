"""Structured logs that state the fate of letters. Normal work logs nothing; credentials never appear."""

import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")
log = structlog.get_logger("dlx_router")


def configure(form: str = "auto", level: str = "info") -> None:
    """Log to stderr as `json` or `text`; `auto` is text on a terminal. Call once, before the first line."""
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    last: Any = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if as_text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True), _redact, last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.upper()),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def redacted(text: str) -> str:
    """The text without the credentials of any URL in it."""
    return _CREDENTIALS.sub("***@", text)


def _redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = redacted(value)
    return event


class Once:
    """Says a thing when it changes, and again when it is over; keyed by what it is about."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def warn(self, key: str, event: str, **fields: Any) -> None:
        """Log unless the same was said about this key last."""
        what = f"{event}{fields.get('cause', '')}{fields.get('error', '')}"
        if self._said.get(key) != what:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[key] = what
            log.warning(event, **fields)

    def healed(self, key: str, event: str, **fields: Any) -> None:
        """Log that it is over, where something was said."""
        if self._said.pop(key, None) is not None:
            log.info(event, **fields)
