"""`dlx-router pipeline report`, `groups`, `backtest`, `advise`, `redrive`: reading the archive, bulk redrive.

Nothing of Spark is imported before a command runs.
"""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.pipeline.archive_commands import (
    ARCHIVE,
    CONNECTION,
    MASTER,
    REMOTE,
    default_connection,
    guarded,
    path_given,
)

_SINCE: Final = typer.Option("--since", help="Only what was decided since: 30d, 12h (before now), or 2026-10-05 (UTC).")
_UNTIL: Final = typer.Option("--until", help="Only what was decided before: as --since.")
_JSON: Final = typer.Option("--json", help="For programs.")
_NO_BODIES: Final = (
    "Copies come from the archive: application headers are not in it, and the letters themselves stay where they lie. "
    "See docs/pipeline-analyses.md."
)


def add_to(app: typer.Typer) -> None:
    """The commands, added to `dlx-router pipeline`."""
    app.command()(report)
    app.command()(groups)
    app.command()(backtest)
    app.command()(advise)
    app.command()(redrive)


@guarded
def report(  # noqa: PLR0913, PLR0917 - options
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    out: Annotated[Path, typer.Option("--out", callback=path_given, help="File of the page.")] = Path("report.html"),
    since: Annotated[str | None, _SINCE] = "7d",
    until: Annotated[str | None, _UNTIL] = None,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", help="Policies that say how long letters wait; without: the longest wait seen."),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Dead letters",
    objective: Annotated[
        float, typer.Option("--objective", min=0, max=0.9999, help="Share of letters that should recover in time.")
    ] = 0.95,
    within: Annotated[str, typer.Option("--within", help="… and in what time from their first death.")] = "15m",
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Write one HTML page: groups, trends, what became of letters, which attempt succeeds, what to change."""
    from dlx_router.cli.pipeline import run_report  # noqa: PLC0415 - see the module

    return run_report.report(
        archive, out, policies,
        since=since, until=until, title=title, objective=objective, within=within, master=master, remote=remote,
    )  # fmt: skip


@guarded
def groups(
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    since: Annotated[
        str | None, typer.Option("--since", help="Only the days (UTC) from then on: 30d before now, or 2026-10-05.")
    ] = "7d",
    queue: Annotated[str | None, typer.Option("--queue", help="Only of this failed queue.")] = None,
    hours: Annotated[  # noqa: FBT002 - an option
        bool, typer.Option("--hours", help="Deaths by hour, queue and group instead.")
    ] = False,
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - an option
) -> int:
    """Print the failure groups, the largest first, from aggregates beside the archive; without Spark."""
    from dlx_router.cli.pipeline import run_groups  # noqa: PLC0415 - see the module

    return run_groups.groups(archive, since, queue, hours=hours, as_json=as_json)


@guarded
def backtest(  # noqa: PLR0913, PLR0917 - options
    policies: Annotated[Path, typer.Option("--policies", help="Folder of the policies to try, or one file.")],
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    since: Annotated[str | None, _SINCE] = "30d",
    until: Annotated[str | None, _UNTIL] = None,
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - an option
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Judge every recorded arrival again under other policies, by the router's own decide(); 1 where any differs."""
    from dlx_router.cli.pipeline import run_backtest  # noqa: PLC0415 - see the module
    from dlx_router.cli.pipeline.run_analysis import Where  # noqa: PLC0415 - as above

    return run_backtest.backtest(Where(archive, since, until, master, remote), policies, as_json=as_json)


@guarded
def advise(  # noqa: PLR0913, PLR0917 - options
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    policies: Annotated[
        Path,
        typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policies in force, or one file."),
    ] = Path("policies"),
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Only this failed queue; repeatable.")] = None,
    since: Annotated[str | None, _SINCE] = "30d",
    until: Annotated[str | None, _UNTIL] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=path_given, help="Write the policy file here, and print the reasons."),
    ] = None,
    second: Annotated[
        float, typer.Option("--cost-of-second", min=0, max=1e6, help="A second of waiting, in retries.")
    ] = 0.01,
    letter: Annotated[
        float, typer.Option("--cost-of-redrive", min=0, max=1e9, help="A letter that a person redrives, in retries.")
    ] = 100.0,
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - an option
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Propose policies by what retries achieved, as a policy file with the reasons; 1 where anything should change."""
    from dlx_router.cli.pipeline import run_advice  # noqa: PLC0415 - see the module
    from dlx_router.cli.pipeline.run_analysis import Where  # noqa: PLC0415 - see the module
    from dlx_router.spark.advice.cost import Prices  # noqa: PLC0415 - numpy may be missing

    where = Where(archive, since, until, master, remote)
    prices = Prices(second, letter)
    return run_advice.run(where, policies, queues=queue or (), prices=prices, out=out, as_json=as_json)


@guarded
def redrive(  # noqa: PLR0913, PLR0917 - options
    plan: Annotated[
        Path, typer.Argument(callback=path_given, help="Folder of the plan: made if it is new, else gone on with.")
    ],
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    queue: Annotated[str | None, typer.Option("--queue", help="Only letters of this failed queue.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only letters that died for this reason.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only letters of this group (fingerprint).")] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="SQL on the archive's columns of the last event.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many, the oldest first.")] = None,
    since: Annotated[str | None, _SINCE] = None,
    until: Annotated[str | None, _UNTIL] = None,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Letters a second; 0: no limit.")] = 50.0,
    connection: Annotated[str | None, CONNECTION] = None,
    to_vhost: Annotated[
        str | None,
        typer.Option("--to-vhost", help="Move letters of other vhosts to this one, which --connection leads to."),
    ] = None,
    dry_run: Annotated[  # noqa: FBT002 - an option
        bool, typer.Option("--dry-run", help="Show what would be sent; write and send nothing.")
    ] = False,
    reconcile: Annotated[  # noqa: FBT002 - typer makes a flag of it
        bool, typer.Option("--reconcile", help="Compare the plan with the journal; after the next ingest.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,  # noqa: FBT002 - typer makes a flag of it
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - typer makes a flag of it
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Send letters of the archive back to their failed queues, by a frozen plan; 1 where some are not confirmed."""
    from dlx_router.cli.pipeline import run_analysis as answers  # noqa: PLC0415 - see the module

    place = answers.Where(archive, since, until, master, remote)
    if reconcile:
        return answers.reconcile(place, plan, as_json=as_json)
    key_file = os.environ.get("DLX_ROUTER_PROVENANCE_KEY_FILE", "")
    if not key_file and not dry_run:
        output.warn(
            "DLX_ROUTER_PROVENANCE_KEY_FILE: not set; copies carry a signed record, so name the file that the "
            "router signs with (a key that it made itself stays in its state queue)",
        )
        return output.WRONG_USE
    choice = answers.Choice(queue, reason, group, where, limit)
    if dry_run:
        return answers.dry_run(place, choice, is_move=to_vhost is not None, as_json=as_json)
    way = answers.way_of(connection or default_connection(), key_file, rate)
    target = answers.target_of(connection or default_connection(), to_vhost)
    frozen = answers.frozen(place, choice, plan, target)
    output.warn(f"{answers.what_goes(frozen, target)} {_NO_BODIES}")
    if twice := answers.goes_twice(plan, frozen):
        output.warn(twice)
        if yes:
            return output.WRONG_USE
    if not yes and not typer.confirm("Send them?", err=True):
        return output.FINDINGS
    return answers.send(place, plan, way, as_json=as_json)
