"""`dlx-router policy`: lint, diff, test, schema."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.options import Json
from dlx_router.config.environment import prefix
from dlx_router.config.findings import Finding, Severity
from dlx_router.config.policy_files.difference import Change, Diff, compared
from dlx_router.config.policy_files.json_schema import schema_text
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.config.policytest import run_tests


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


_KEYS: Final = ("key", "before", "after")


def lint(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policy files, or one file.")
    ] = Path("policies"),
    *,
    form: Annotated[
        Format,
        typer.Option("--format", help="text: a line each; json: for programs; github: for its workflows."),
    ] = Format.TEXT,
    broker: Annotated[
        bool, typer.Option("--broker", help="Look at the broker of DLX_ROUTER_MANAGEMENT_URL too.")
    ] = False,
) -> None:
    """Check all policy files of a folder and show every finding at once; 1 where there is one."""
    try:
        loaded = load_policies(path, prefix.names())
    except PolicyErrors as error:
        findings, unreadable, summary = error.findings, error.unreadable, ""
    else:
        findings, unreadable = loaded.warnings, False
        if broker:
            from dlx_router.cli import policy_lint_broker  # noqa: PLC0415 - most runs need no broker

            findings = tuple(sorted({*findings, *policy_lint_broker.findings(loaded)}))
        policies, files = len(loaded.policies.policies), len(loaded.files)
        where = f"{output.number(policies, 'policy', 'policies')} in {output.number(files, 'file')}"
        summary = f"{where}, revision {loaded.policies.revision}"
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    counts = {"errors": errors, "warnings": len(findings) - errors}
    if form is Format.JSON:
        keys = ("code", "severity", "file", "line", "message")
        rows = [{key: getattr(finding, key) for key in keys} for finding in findings]
        output.as_json({"findings": rows, **counts})
    elif form is Format.GITHUB:
        print(*map(_annotation, findings), sep="\n", end="\n" if findings else "")
    else:
        for finding in findings:
            output.say(str(finding))
        numbers = (output.number(count, kind.removesuffix("s")) for kind, count in counts.items())
        output.warn(", ".join(filter(None, [*numbers, summary])))
    raise typer.Exit(output.WRONG_USE if unreadable else output.FINDINGS if findings else output.OK)


def _annotation(finding: Finding) -> str:
    """Return a workflow command, which GitHub shows as an annotation at the line."""
    file, message = (
        text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A") for text in (finding.file, finding.message)
    )
    file = file.replace(":", "%3A").replace(",", "%2C")
    return f"::{finding.severity} file={file},line={finding.line},title={finding.code}::{message}"


def judge(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policies and tests, or one file of tests.")
    ] = Path("policies"),
) -> None:
    """Judge the letters of all *.test.yaml as the router would, and show each that is not as expected."""
    results = run_tests(path, prefix.names())
    failed = [result for result in results if not result.passed]
    for result in failed:
        output.say(str(result))
    for doubt in filter(None, (result.doubt for result in results)):
        output.warn(doubt)
    output.warn(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    raise typer.Exit(output.FINDINGS if failed else output.OK)


def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    print(schema_text())


def diff(
    was: Annotated[Path, typer.Argument(metavar="A", help="Before: folder of policy files, or one file.")],
    now: Annotated[Path, typer.Argument(metavar="B", help="After: the same.")],
    *,
    vhost: Annotated[str, typer.Option(help="Compare what this vhost obeys.")] = "/",
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Look at this queue too, beside those that policies name; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what two folders of policies say differently, by policy, queue and key; 1 where they differ."""
    try:
        names = prefix.names()
        before, after = (load_policies(path, names) for path in (was, now))
    except PolicyErrors as error:
        raise typer.Exit(output.wrong_use(error)) from None
    difference = compared(before, after, vhost, tuple(queues or ()))
    revisions = before.policies.revision, after.policies.revision
    if as_json:
        output.as_json(_document(difference, *revisions))
    else:
        output.say(f"{was} → {now}", *_notes(difference, vhost, is_same=revisions[0] == revisions[1]))
        for policy in difference.policies:
            _print_keys(f"Policy {policy.name}: {policy.change}", policy.keys)
        for queue in difference.queues:
            kind = f" ({queue.queue_type})" if queue.queue_type else ""
            first, last = (", ".join(names) or "no policy" for names in (queue.was, queue.now))
            by = first if first == last else f"{first} → {last}"
            _print_keys(f"Queue {queue.queue}{kind}: {by}", queue.keys)
        if difference.sources:
            _print_keys("Attachments and delayed exchanges:", difference.sources)
    raise typer.Exit(output.OK if difference.is_equal else output.FINDINGS)


def _document(difference: Diff, was: str, now: str) -> dict[str, Any]:
    def rows(keys: Sequence[Change]) -> list[dict[str, str]]:
        return [change._asdict() for change in keys]

    return {
        "was": {"revision": was},
        "now": {"revision": now},
        "is_equal": difference.is_equal,
        "policies": [{**policy._asdict(), "keys": rows(policy.keys)} for policy in difference.policies],
        "queues": [{**queue._asdict(), "keys": rows(queue.keys)} for queue in difference.queues],
        "sources": rows(difference.sources),
        "is_reordered": difference.is_reordered,
    }


def _notes(difference: Diff, vhost: str, *, is_same: bool) -> Iterator[str]:
    if difference.is_equal:
        yield f"Both {'are the same' if is_same else 'decide alike'} in vhost {vhost}."
    if difference.is_reordered:
        yield "Policies come in another order: where two are equal otherwise, the first wins."


def _print_keys(heading: str, keys: Sequence[Change]) -> None:
    output.say("", heading)
    if keys:
        cells = [(change.key, (change.was, change.was_by), (change.now, change.now_by)) for change in keys]
        output.table(
            _KEYS, [(key, *(", ".join(filter(None, (value or "–", by))) for value, by in of)) for key, *of in cells]
        )
