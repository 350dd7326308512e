"""`dlx-router policy lint`."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from dlx_router.cli import output
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.findings import Finding
from dlx_router.config.lint import output_formats
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies

_REPORTS: Final[Mapping[str, Callable[[Sequence[Finding]], str]]] = {
    "text": output_formats.as_text,
    "json": output_formats.as_json,
    "sarif": output_formats.as_sarif,
    "github": output_formats.as_github,
}


def run(path: Path, form: StrEnum, *, broker: bool = False) -> int:
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
            from dlx_router.cli.policy import lint_broker  # noqa: PLC0415 - most runs need no broker

            more = lint_broker.findings(loaded)
            if more is None:
                return output.WRONG_USE
            findings = tuple(sorted({*findings, *more}))
        policies, files = len(loaded.policies.policies), len(loaded.files)
        where = f"{output.number(policies, 'policy', 'policies')} in {output.number(files, 'file')}"
        summary = f"{where}, revision {loaded.policies.revision}"
    if (text := _REPORTS[form](findings)) and form == "text":
        output.say(text)
    elif text:
        print(text)
    if form == "text":
        numbers = (
            output.number(count, kind.removesuffix("s")) for kind, count in output_formats.counts(findings).items()
        )
        line = ", ".join(filter(None, [*numbers, summary]))
        output.warn(line)
    return output.WRONG_USE if unreadable else output.FINDINGS if findings else output.OK
