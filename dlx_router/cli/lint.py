"""`dlx-router policy lint`."""

import sys
from pathlib import Path

from dlx_router.cli import output
from dlx_router.config.policies import PolicyErrors, load_policies


def run(path: Path, *, as_json: bool) -> int:
    """Print every finding. 0 without any, 1 with some, warnings too; 2 where a path cannot be read."""
    try:
        loaded = load_policies(path)
    except PolicyErrors as error:
        findings, unreadable, summary = error.findings, error.unreadable, ""
    else:
        findings, unreadable = loaded.warnings, False
        policies, files = len(loaded.policies.policies), len(loaded.files)
        summary = f"{policies} policies in {files} files, revision {loaded.policies.revision}"
    if as_json:
        print(output.as_json(findings))
    else:
        for finding in findings:
            print(finding)
        numbers = output.counts(findings)
        said = ", ".join(filter(None, [f"{numbers['errors']} errors, {numbers['warnings']} warnings", summary]))
        print(said, file=sys.stderr)
    return output.WRONG_USE if unreadable else output.FINDINGS if findings else output.OK
