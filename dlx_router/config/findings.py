"""Findings: what is wrong with a file, where, and what to do now. Codes are stable: people search by them."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dlx_router.core.printable import redacted

UNREADABLE: Final = "DLX001"
SYNTAX: Final = "DLX002"
REFUSED_YAML: Final = "DLX003"
DUPLICATE_KEY: Final = "DLX004"
UNKNOWN_KEY: Final = "DLX005"
MISSING_KEY: Final = "DLX006"
BAD_VALUE: Final = "DLX007"
DUPLICATE_NAME: Final = "DLX009"
VERSION: Final = "DLX010"
AMBIGUOUS: Final = "DLX101"
UNREACHABLE: Final = "DLX102"
WITHOUT_EFFECT: Final = "DLX103"
BACK_TO_WORK: Final = "DLX105"
SPREADING_EXCHANGE: Final = "DLX106"
CHAIN: Final = "DLX107"
CYCLE: Final = "DLX108"
FIFO_WAITS: Final = "DLX110"
OPEN_TARGET: Final = "DLX114"
VHOST_NOT_SERVED: Final = "DLX115"
OWN_TARGET: Final = "DLX116"
WIDE_DISCARD: Final = "DLX117"
OWN_SUBJECT: Final = "DLX118"
ATTACHED_TWICE: Final = "DLX130"
WITHOUT_LIMITS: Final = "DLX131"
ALL_NEW: Final = "DLX132"
NOT_CATCHABLE: Final = "DLX201"
MISSING_EXCHANGE: Final = "DLX202"
NO_BINDING: Final = "DLX203"
NOT_DURABLE: Final = "DLX204"
NO_RIGHT: Final = "DLX206"
NOT_GUARDED: Final = "DLX208"
SILENTLY_ONCE: Final = "DLX209"
LIMIT_DELETES: Final = "DLX210"
SPECIAL_QUEUE: Final = "DLX214"
DELAYED_EXCHANGE: Final = "DLX216"
NOT_READ: Final = "DLX217"
NO_SUCH_QUEUE: Final = "DLX218"
EVERY_QUEUE: Final = "DLX219"
DELAYED_TWICE: Final = "DLX140"
DELAYED_CIRCLE: Final = "DLX141"
DELAYED_NAME: Final = "DLX142"


class Severity(StrEnum):
    """An error refuses the policies; a warning is said and logged."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that a person should look at; `line` and `column` count from 1, column 0 is the whole line.

    The message says what, and what now.
    """

    file: str
    line: int
    code: str
    severity: Severity
    message: str
    column: int = 0

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}: {self.severity} {self.code}: {self.message}"


class PolicyErrors(Exception):
    """The policies cannot be used. `findings` are all errors and warnings of all files, in order of file and line."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(findings))
        super().__init__("\n".join(map(str, self.findings)))

    @property
    def unreadable(self) -> bool:
        """Whether a file or the folder could not be read at all: wrong use rather than wrong content."""
        return any(finding.code == UNREADABLE for finding in self.findings)


@dataclass(slots=True)
class Report:
    """Collects the findings of one file, so that one run shows them all."""

    file: str
    findings: list[Finding] = field(default_factory=list)

    def error(self, code: str, line: int, message: str, column: int = 0) -> None:
        """Note an error."""
        self.findings.append(Finding(self.file, line, code, Severity.ERROR, redacted(message), column))

    def warning(self, code: str, line: int, message: str) -> None:
        """Note a warning."""
        self.findings.append(Finding(self.file, line, code, Severity.WARNING, redacted(message)))


def kebab(word: str) -> str:
    """The word as keys are spelled: `max_retries` and `maxRetries` are `max-retries`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word[:100]).replace("_", "-").lower().removeprefix("x-")


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "…"?` with the known word that is nearest, however it is spelled; else an empty text."""
    matches = difflib.get_close_matches(kebab(word), sorted(known), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""


def shown(text: str, limit: int = 60) -> str:
    """The text in quotes, cut and made printable, without the credentials of a URL: files come from anybody."""
    text = redacted(text)
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return '"' + "".join(char if char.isprintable() else "�" for char in cut) + '"'
