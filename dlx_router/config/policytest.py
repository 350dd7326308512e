"""Tests beside policies: letters and the decision expected of each, judged by the daemon's own `decide`.

A test says what died where and how often; everything else of the letter is made up. No broker, no clock and no chance:
`draw` is the chance of the jitter. An example: docs/start.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlx_router.config.findings import MISSING_KEY, UNREADABLE, PolicyErrors, Report, Severity
from dlx_router.config.language import values, yaml_tree
from dlx_router.config.language.keys import REASONS, known_reason
from dlx_router.config.language.shape import Field, Shape, raw
from dlx_router.config.language.value_text import left_out_text
from dlx_router.config.language.values import rejected, takes, unexpected
from dlx_router.config.language.yaml_tree import Items, Node, Pairs, Scalar, described
from dlx_router.config.policy_files.document import listed, version_known
from dlx_router.config.policy_files.loader import (
    TEST_SUFFIX,
    LoadedPolicies,
    has_tests,
    load_policies,
    read_file,
    why_unreadable,
)
from dlx_router.config.units import duration_text
from dlx_router.core.decision import decide
from dlx_router.core.explanation import explain
from dlx_router.core.letter import Arrival, Death, First, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Decision, Retry
from dlx_router.core.places import looked_up
from dlx_router.core.policy import OURS, TYPES, Effective, Policy
from dlx_router.core.words import UNKNOWN, Action, Cause

_DECIDED: Final = (Action.RETRY, Action.DEAD_LETTER, Action.PARK, Action.DISCARD)
_MANY: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Case:
    """One test as it was written; `letter` and `expect` by their keys, durations in ms."""

    name: str
    file: str
    line: int
    letter: Mapping[str, Any]
    expect: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One key of the expectation that is otherwise, both sides as a person would write them."""

    key: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Result:
    """How a test went; `says` is the sentence by which the decision explains itself.

    `left_out`: policies for one type of queues that were not judged, because the test does not say the queue's type.
    """

    case: Case
    differences: tuple[Difference, ...]
    says: str
    left_out: tuple[Policy, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the decision is the expected one in each key that was named."""
        return not self.differences

    @property
    def doubt(self) -> str:
        """What the test leaves open, in a line; empty where it is nothing."""
        if not self.left_out:
            return ""
        omitted = "; ".join(map(left_out_text, self.left_out))
        where = f"{self.case.file}:{self.case.line}: {self.case.name}"
        return f"{where}: the queue's type is not said, so not judged: {omitted}; write queue-type: quorum or classic"

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        rows = [
            ("", "expected", "found"),
            *((difference.key, difference.expected, difference.found) for difference in self.differences),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows if self.differences]
        return "\n".join(
            (f"{self.case.file}:{self.case.line}: {verdict}: {self.case.name}", *table, f"    {self.says}")
        )


def run_tests(path: Path, names: Names = OURS) -> tuple[Result, ...]:
    """The results of all `*.test.yaml` of a folder, or of one such file, against the policies of the folder.

    Raises PolicyErrors with all that is wrong in policies and tests, also where there are no tests.
    """
    files = _files(path)
    cases: list[Case] = []
    findings = []
    for file in files:
        report = Report(str(file))
        if (data := read_file(file, report)) is not None and (node := yaml_tree.parse(data, report)) is not None:
            cases += _cases(node, report)
        findings += report.findings
    try:
        loaded = load_policies(files[0].parent, names)
    except PolicyErrors as error:
        raise PolicyErrors([*error.findings, *findings]) from None
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise PolicyErrors(findings)
    return tuple(judged(case, loaded, names) for case in cases)


def judged(case: Case, loaded: LoadedPolicies, names: Names = OURS) -> Result:
    """The test's letter under these policies, as the daemon would decide at time 0."""
    queue, reason, vhost = case.letter["queue"], case.letter.get("reason", REASONS[0]), case.letter.get("vhost", "/")
    policies, queue_type = loaded.policies, case.letter.get("queue-type")
    policy = policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=queue_type)
    left_out = policies.left_out(vhost=vhost, queue=queue, queue_type=queue_type)
    letter = _letter(case.letter, (vhost, queue, reason), names.inbox, counts=_counts(reason, policy))
    decision = decide(letter, policy, 0, case.letter.get("draw", 0.0))
    outcome = _outcome(decision, policy)
    differences = (
        Difference(key, _text(key, value), _text(key, outcome.get(key))) for key, value in case.expect.items()
    )
    failed = tuple(difference for difference in differences if difference.expected != difference.found)
    return Result(case, failed, explain(decision, letter, policy), left_out)


def _counts(reason: str, policy: Effective | None) -> bool:
    return policy is not None and reason.partition(":")[0] in policy.retry_on


def _letter(written: Mapping[str, Any], where: tuple[str, str, str], inbox: str, *, counts: bool) -> Letter:
    """A letter that has just died, by vhost, queue and reason; one of unknown reason has no history."""
    vhost, queue, reason = where
    keys = (written.get("routing-key", queue), *written.get("cc", ()))
    broker_reason = reason if reason in REASONS[:4] else REASONS[0]
    exchange, headers = written.get("exchange", ""), written.get("headers", {})
    death = Death(queue, broker_reason, 1, 0, exchange, keys)
    unknown = reason == UNKNOWN
    before = written.get("attempts", counts) - counts  # this death is one of them, where it counts
    body = written.get("body", b"")
    return Letter(
        id="", vhost=vhost, source=queue if unknown else inbox, arrival=Arrival.INBOX, exchange=exchange,
        routing_key=keys[0], history=() if unknown else (death,),
        first=None if unknown else First(queue, exchange, keys, broker_reason), failed_queue=queue, reason=reason,
        fresh=() if unknown else (death._replace(reason=reason),), base_attempts=before,
        redrives=written.get("redrives", 0), tries=0, header=headers.get, first_death_ms=-written.get("age", 0),
        body=looked_up(body), content_type=written.get("content-type", ""), size=written.get("size", len(body)),
    )  # fmt: skip


def _outcome(decision: Decision, policy: Effective | None) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "decision": _word(decision.action),
        "cause": decision.cause.value if decision.cause else None,
        "policy": policy.policy if policy is not None else None,
    }
    match decision:
        case Retry():
            outcome["wait"] = decision.wait_ms
        case DeadLetter():
            outcome |= {"exchange": decision.exchange, "routing-key": decision.keys[0], "cc": decision.keys[1:]}
            outcome["queue"] = decision.queue
    return outcome


def _word(action: Action) -> str:
    """The decision's name in policies, where words are joined by hyphens."""
    return action.value.replace("_", "-")


def _text(key: str, value: Any) -> str:
    match value:
        case None:
            return "none"
        case int() if key == "wait":
            return duration_text(value)
        case tuple():
            return f"[{', '.join(value)}]"
        case _:
            return str(value) or '""'


# -- reading ------------------------------------------------------------------------------------------------------


@takes({"type": "string"})
def _reason(node: Node) -> str:
    written = node.text if isinstance(node, Scalar) else ""
    if not known_reason(written) and written != UNKNOWN:
        known = f"{', '.join(REASONS)}, application:NAME or {UNKNOWN}"
        raise rejected(node, f"expected {known}, found {described(node)}")
    return written


@takes({"type": "object"})
def _headers(node: Node) -> dict[str, str]:
    """Scalar headers as a template would see them: numbers and booleans as text."""
    if not isinstance(node, Pairs):
        raise unexpected(node, "a mapping of header names to texts, numbers or booleans")
    return {key.text: _header(value) for key, value in node.pairs}


def _header(node: Node) -> str:
    value = node.value if isinstance(node, Scalar) else None
    if value is None:
        raise unexpected(node, "a text, number or boolean; a policy sees nothing else")
    return str(value).lower() if isinstance(value, bool) else str(value)


@takes({})
def _body(node: Node) -> bytes:
    """A text is the body itself; any other value is the body as JSON."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.text.encode(errors="replace")
    return json.dumps(_plain(node)).encode()


def _plain(node: Node) -> Any:
    match node:
        case Items():
            return [_plain(item) for item in node.items]
        case Pairs():
            return {key.text: _plain(value) for key, value in node.pairs}
        case Scalar():
            return node.value


_NAME: Final = values.text()
_KEY: Final = values.text(empty=True)
_KEYS: Final = values.list_of(_KEY, "a list of routing keys")
FILE: Final = Shape(
    "a file of tests",
    {"version": raw, "tests": raw},
    hints={"policies": "this file holds tests; write policies into a file of their own"},
)
TEST: Final = Shape("a test", {"name": values.name, "letter": raw, "expect": raw})
LETTER: Final = Shape(
    "a letter",
    {
        "vhost": _NAME, "queue": _NAME, "reason": _reason, "attempts": values.integer(1, _MANY),
        "redrives": values.integer(0, _MANY), "exchange": _KEY, "routing-key": _KEY, "cc": _KEYS, "headers": _headers,
        "draw": values.number(-1, 1, "a number in -1..1, the chance of the jitter"),
        "queue-type": values.one_of(*TYPES, "stream"), "body": _body, "content-type": _KEY, "size": values.size,
        "age": values.duration,
    },
)  # fmt: skip
EXPECT: Final = Shape(
    "an expectation",
    {
        "decision": values.one_of(*map(_word, _DECIDED)), "cause": values.one_of(*Cause), "policy": values.name,
        "wait": values.duration, "exchange": _KEY, "routing-key": _KEY, "cc": _KEYS, "queue": _NAME,
    },
)  # fmt: skip


def _files(path: Path) -> list[Path]:
    report = Report(str(path))
    try:
        if has_tests(path.name):
            return [path]
        if path.is_file():
            report.error(UNREADABLE, 1, f"no tests: their files end in {TEST_SUFFIX}; name one of those, or the folder")
            raise PolicyErrors(report.findings)
        files = sorted(file for file in path.iterdir() if has_tests(file.name) and file.name[0] != ".")
    except (OSError, ValueError) as error:
        report.error(UNREADABLE, 1, why_unreadable(error))
        raise PolicyErrors(report.findings) from None
    if not files:
        report.error(
            UNREADABLE, 1, f"no tests (*{TEST_SUFFIX}) in this folder; write some, or name the folder of others"
        )
        raise PolicyErrors(report.findings)
    return files


def _cases(node: Node, report: Report) -> list[Case]:
    fields = FILE.read(node, report)
    if fields is None or not version_known(fields.get("version"), node.line, report):
        return []
    cases = [_case(entry, report) for entry in listed(fields.get("tests"), "tests", report)]
    return [case for case in cases if case is not None]


def _case(node: Node, report: Report) -> Case | None:
    fields = TEST.read(node, report)
    if fields is None:
        return None
    letter = _part(fields, "letter", LETTER, "queue", node, report)
    expect = _part(fields, "expect", EXPECT, "decision", node, report)
    if letter is None or expect is None:
        return None
    name = fields["name"].value if "name" in fields else f"{letter.get('reason', REASONS[0])} at {letter['queue']}"
    return Case(name, report.file, node.line, letter, expect)


def _part(
    test: Mapping[str, Field], key: str, shape: Shape, needed: str, node: Node, report: Report
) -> dict[str, Any] | None:
    """The letter or the expectation of a test, or None where the report says what is missing or wrong."""
    if key not in test:
        report.error(MISSING_KEY, node.line, f"a test without {key}:; write it, with at least {needed}: in it")
        return None
    part: Node = test[key].value
    fields = shape.read(part, report)
    if fields is None:
        return None
    if not isinstance(part, Pairs) or all(name.text != needed for name, _ in part.pairs):
        report.error(MISSING_KEY, part.line, f"{key}: {needed}: is missing; write it")
    return {name: field.value for name, field in fields.items()} if needed in fields else None
