"""`dlx-router pipeline repair`: by this process alone, without Spark's session and Java."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlx_router.cli import output
from dlx_router.spark.archive.missing import described
from dlx_router.spark.archive.repair import accept, from_stream, repair
from dlx_router.spark.tables.database import fold


def run(root: Path, source: Mapping[str, str], *, keep_lines: bool) -> int:
    """The exit code: 1 where something is lost still."""
    done = repair(root, from_stream(source, keep_lines=keep_lines), fold)
    output.say(*(done.restored or ([] if done.left else ["nothing is lost or damaged"])))
    for problem in done.left:
        output.warn(problem)
    return output.FINDINGS if done.left else output.OK


def accept_losses(root: Path, names: Sequence[str]) -> int:
    """The exit code."""
    output.say(*map(described, accept(root, names, fold)))
    return output.OK
