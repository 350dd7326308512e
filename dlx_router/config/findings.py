"""Findings: what is wrong with a file, where, and what to do now. Codes are stable: people search by them."""

import difflib
import re
from collections.abc import Iterable, Mapping
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

# What each code is about, in the words of docs/lint.md, which has a section for each.
TITLES: Final[Mapping[str, str]] = {
    UNREADABLE: "a file or folder cannot be read",
    SYNTAX: "not YAML",
    REFUSED_YAML: "more YAML than a policy needs",
    DUPLICATE_KEY: "a key is written twice",
    UNKNOWN_KEY: "an unknown key",
    MISSING_KEY: "something is missing",
    BAD_VALUE: "a value that cannot be",
    DUPLICATE_NAME: "two policies of one name",
    VERSION: "the version is missing or unknown",
    AMBIGUOUS: "only the order of the files decides",
    UNREACHABLE: "a policy that is never used",
    WITHOUT_EFFECT: "a key without effect",
    BACK_TO_WORK: "dead letters would return to the work queue",
    SPREADING_EXCHANGE: "an exchange that spreads dead letters",
    CHAIN: "letters of a dead-letter queue may die again",
    FIFO_WAITS: "an order in which letters may not wait",
    OPEN_TARGET: "whoever publishes may name any queue",
    VHOST_NOT_SERVED: "a vhost that is not served",
    OWN_TARGET: "dead letters for the router itself",
    WIDE_DISCARD: "letters of any queue are dropped",
    OWN_SUBJECT: "the router's own queues as a subject",
    ATTACHED_TWICE: "a queue is attached twice",
    WITHOUT_LIMITS: "a guard without limits",
    ALL_NEW: "an attachment whose letters all count as new",
    CYCLE: "dead letters that go round",
    NOT_CATCHABLE: "a queue that cannot be caught",
    MISSING_EXCHANGE: "an exchange that does not exist",
    NO_BINDING: "the key leads to no queue",
    NOT_DURABLE: "a target that a restart loses",
    NO_RIGHT: "the router may not write to a target",
    NOT_GUARDED: "a queue that cannot be guarded",
    SILENTLY_ONCE: "at-least-once that is not",
    LIMIT_DELETES: "a delivery limit that deletes",
    SPECIAL_QUEUE: "a stream as source, or a priority queue or stream as target",
    DELAYED_EXCHANGE: "an x-delayed-message exchange",
    NOT_READ: "a queue that a read would delete",
    NO_SUCH_QUEUE: "a selector that matches no queue",
    EVERY_QUEUE: "a policy for every queue of a vhost",
    DELAYED_TWICE: "an exchange is delayed twice",
    DELAYED_CIRCLE: "a delayed exchange leads back to itself",
    DELAYED_NAME: "a name that a delayed exchange cannot have",
}


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
