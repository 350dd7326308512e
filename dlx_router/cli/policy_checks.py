"""`dlx-router policy` lint, test and diff: the work of the commands in cli/policy."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlx_router.cli import output
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.findings import Finding, Severity
from dlx_router.config.policy_files.difference import Change, Diff, QueueChange, compared
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.policytest import run_tests


def lint(path: Path, form: StrEnum, *, broker: bool = False) -> int:
    """Print every finding. 0 without any, 1 with some, warnings too; 2 where a path or the broker cannot be read."""
    try:
        loaded = load_policies(path, prefix.names())
    except PrefixError as error:
        return output.wrong_use(error)
    except PolicyErrors as error:
        findings, unreadable, summary = error.findings, error.unreadable, ""
    else:
        findings, unreadable = loaded.warnings, False
        if broker:
            from dlx_router.cli import policy_lint_broker  # noqa: PLC0415 - most runs need no broker

            more = policy_lint_broker.findings(loaded)
            if more is None:
                return output.WRONG_USE
            findings = tuple(sorted({*findings, *more}))
        policies, files = len(loaded.policies.policies), len(loaded.files)
        where = f"{output.number(policies, 'policy', 'policies')} in {output.number(files, 'file')}"
        summary = f"{where}, revision {loaded.policies.revision}"
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    counts = {"errors": errors, "warnings": len(findings) - errors}
    if form == "json":
        output.as_json({"findings": [_row(finding) for finding in findings], **counts})
    elif form == "github":
        print(*map(_annotation, findings), sep="\n", end="\n" if findings else "")
    else:
        output.say(*map(str, findings))
        numbers = (output.number(count, kind.removesuffix("s")) for kind, count in counts.items())
        output.warn(", ".join(filter(None, [*numbers, summary])))
    return output.WRONG_USE if unreadable else output.FINDINGS if findings else output.OK


def _row(finding: Finding) -> dict[str, Any]:
    keys = ("code", "severity", "file", "line", "message")
    return {key: getattr(finding, key) for key in keys}


def _annotation(finding: Finding) -> str:
    """Return a workflow command, which GitHub shows as an annotation at the line."""
    file, message = (
        text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A") for text in (finding.file, finding.message)
    )
    file = file.replace(":", "%3A").replace(",", "%2C")
    return f"::{finding.severity} file={file},line={finding.line},title={finding.code}::{message}"


def test(path: Path) -> int:
    """Print every test that failed, and why. 0 where all passed, 1 where one did not, 2 where there are none."""
    try:
        results = run_tests(path, prefix.names())
    except PolicyErrors as error:
        return output.refuse(error)
    except PrefixError as error:
        return output.wrong_use(error)
    failed = [result for result in results if not result.passed]
    for result in failed:
        output.say(str(result))
    for doubt in filter(None, (result.doubt for result in results)):
        output.warn(doubt)
    output.warn(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return output.FINDINGS if failed else output.OK


_KEYS: Final = ("key", "before", "after")


class Question(NamedTuple):
    """Two folders or files. `queues`: to be looked at beside those that policies name."""

    was: Path
    now: Path
    vhost: str = "/"
    queues: tuple[str, ...] = ()


def diff(asked: Question, *, as_json: bool = False) -> int:
    """Return 0 if both decide alike, 1 if they differ, 2 if they cannot be compared."""
    try:
        names = prefix.names()
        was, now = (load_policies(path, names) for path in (asked.was, asked.now))
    except PolicyErrors as error:
        output.warn(error)
        return output.WRONG_USE
    except PrefixError as error:
        return output.wrong_use(error)
    difference = compared(was, now, asked.vhost, asked.queues)
    if as_json:
        output.as_json(_document(difference, was, now))
    else:
        _print(difference, asked, is_same=was.policies.revision == now.policies.revision)
    return output.OK if difference.is_equal else output.FINDINGS


def _document(difference: Diff, was: LoadedPolicies, now: LoadedPolicies) -> dict[str, Any]:
    return {
        "was": {"revision": was.policies.revision},
        "now": {"revision": now.policies.revision},
        "is_equal": difference.is_equal,
        "policies": [{**policy._asdict(), "keys": _rows(policy.keys)} for policy in difference.policies],
        "queues": [{**queue._asdict(), "keys": _rows(queue.keys)} for queue in difference.queues],
        "sources": _rows(difference.sources),
        "is_reordered": difference.is_reordered,
        "queues_left": difference.queues_left,
    }


def _rows(keys: Sequence[Change]) -> list[dict[str, str]]:
    return [change._asdict() for change in keys]


def _print(difference: Diff, asked: Question, *, is_same: bool) -> None:
    output.say(f"{asked.was} → {asked.now}")
    output.say(*_notes(difference, asked.vhost, is_same=is_same))
    for policy in difference.policies:
        output.say("", f"Policy {policy.name}: {policy.change}")
        _print_keys(policy.keys)
    for queue in difference.queues:
        output.say("", _heading(queue))
        _print_keys(queue.keys)
    if difference.sources:
        output.say("", "Attachments and delayed exchanges:")
        _print_keys(difference.sources)


def _notes(difference: Diff, vhost: str, *, is_same: bool) -> Iterator[str]:
    if difference.is_equal:
        yield f"Both {'are the same' if is_same else 'decide alike'} in vhost {vhost}."
    if difference.is_reordered:
        yield "Policies come in another order: where two are equal otherwise, the first wins."
    if difference.queues_left:
        yield f"{output.number(difference.queues_left, 'queue')} more not looked at."


def _heading(queue: QueueChange) -> str:
    kind = f" ({queue.queue_type})" if queue.queue_type else ""
    was, now = (", ".join(names) or "no policy" for names in (queue.was, queue.now))
    return f"Queue {queue.queue}{kind}: {was if was == now else f'{was} → {now}'}"


def _print_keys(keys: Sequence[Change]) -> None:
    if keys:
        output.table(
            _KEYS, [(change.key, _cell(change.was, change.was_by), _cell(change.now, change.now_by)) for change in keys]
        )


def _cell(value: str, by: str) -> str:
    text = value or "–"
    return f"{text}, {by}" if by else text
