"""The commands. Each imports what it needs when it runs, so that help and completion are there at once.

Exit codes: 0 ok, 1 findings, 2 wrong use or unreadable path, 130 interrupted. See
docs/architecture.md ("Frozen names").
"""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dlx_router.cli import console, groups, letters, operator_commands, policy, status, webhooks
from dlx_router.cli.pipeline import analysis_commands, archive_commands, table_commands
from dlx_router.config.rights.purpose import Purpose
from dlx_router.telemetry import faults

_STDERR = 2
# As somebody meets them; what changes letters comes after what looks at them.
ORDER = ("run", "policy", "plan", "apply", "destroy", "permissions", "doctor", "status", "queues", "groups", "letters",
         "redrive", "edit", "discard", "audits", "console", "webhooks",
         "pipeline", "support-bundle")  # fmt: skip


_UsageError: Any = typer.BadParameter.__bases__[0]  # typer brings a click of its own


class _Group(TyperGroup):
    """A group whose help shows the whole first sentence about each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer brings a click of its own
        """Names of commands with their sentences."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(500))
                    for name, command in commands.items()
                    if command and not command.hidden
                ]
            )


class _InOrder(_Group):
    """The help lists commands as ORDER has them, others behind; a word that is none gets an answer that helps."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer brings a click of its own
        """Their names."""
        known = {name: at for at, name in enumerate(ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: known.get(name, len(known)))

    def resolve_command(self, ctx: Any, args: Any) -> Any:  # noqa: ANN401 - as above
        """The command; a word that is one of a group's says whose."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            groups = {name: getattr(self.get_command(ctx, name), "commands", {}) for name in self.list_commands(ctx)}
            suggestions = [f"`dlx-router {name} {args[0]}`" for name, commands in groups.items() if args[0] in commands]
            if suggestions:  # which is more than a word that is spelled like it
                error.message = (
                    f"{error.message.partition(' Did you mean')[0]} Did you mean {' or '.join(suggestions)}?"
                )
            elif "Did you mean" not in error.message:
                error.message = f"{error.message} `dlx-router --help` lists the commands"
            raise


app = typer.Typer(
    name="dlx-router",
    cls=_InOrder,
    help="Decides what happens to RabbitMQ messages after they failed, by policies in YAML.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # what is drawn in boxes is cut: options, variables, addresses
    context_settings={"max_content_width": 120},
)
app.add_typer(policy.app, name="policy")
operator_commands.add_to(app)
app.add_typer(letters.app, name="letters")
app.add_typer(groups.app, name="groups")
app.command()(groups.queues)
app.command()(status.status)
app.command()(status.audits)
app.command()(console.console)
app.add_typer(webhooks.app, name="webhooks")
analysis_commands.add_to(archive_commands.app)
table_commands.add_to(archive_commands.app)
app.add_typer(archive_commands.app, name="pipeline")

_YES = typer.Option("--yes", "-y", help="Do not ask. Only who sits at a terminal is asked.")
_UNCOUNTED = typer.Option(
    "--uncounted", help="Go on where the broker counts nothing (statistics off): you have looked that nothing is there."
)
_POLICIES = typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, by default that of the process; always ends by SystemExit."""
    if arguments is None:  # the process is ours
        _open_standard_streams()
        faults.install()
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")  # a queue's name may be of any bytes, a terminal of any encoding
    try:
        app(arguments, prog_name="dlx-router")
    except Exception as error:  # the outermost; typer would print a traceback, whatever hook there is
        if arguments is not None:
            raise
        faults.tell("ended", error)
        raise SystemExit(1) from None
    finally:
        if arguments is None and sys.stderr is not None:
            _leave_stderr()


def _leave_stderr() -> None:
    """What cannot be written to it is given up: Python would try again as it ends, and turn our exit code into 120."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)


def _open_standard_streams() -> None:
    """What was closed leads nowhere, before a socket takes its number: uvloop ends the process over that."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        from dlx_router import __version__  # noqa: PLC0415 - see the module

        print(f"dlx-router {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def permissions(
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    user: Annotated[
        str | None,
        typer.Option(help="The user; without it that of AMQP_URL; for plan, apply, destroy of MANAGEMENT_URL."),
    ] = None,
    purpose: Annotated[
        Purpose, typer.Option("--for", help="What the user is to do; observe is run --observe.")
    ] = Purpose.RUN,
    form: Annotated[Format, typer.Option("--format", help="text: for people; json: a definitions file.")] = Format.TEXT,
) -> None:
    """Show the least rights that the user of a command needs, as the settings and policies ask for them."""
    from dlx_router.cli import permissions as command  # noqa: PLC0415 - see the module

    given = {"policies": str(policies)}
    raise typer.Exit(command.run(given, user, purpose.value, as_json=form is Format.JSON))


@app.command()
def plan(
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Write policies for retry loops that were made by hand with TTL and DLX.")
    ] = False,
) -> None:
    """Show what the broker lacks for the policies, and what differs; 1 where something does. Changes nothing."""
    from dlx_router.cli import provisioning as command  # noqa: PLC0415 - see the module

    work = command.adopt() if adopt else command.plan(as_json=as_json)
    raise typer.Exit(command.run({"policies": str(policies)}, work, without_policies=adopt))


@app.command()
def apply(
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    yes: Annotated[bool, _YES] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As plan: show it, change nothing.")] = False,
    uncounted: Annotated[bool, _UNCOUNTED] = False,
) -> None:
    """Make the broker send dead letters to the router, as the policies say; shows what it changes, and asks."""
    from dlx_router.cli import provisioning as command  # noqa: PLC0415 - see the module

    work = (
        command.plan(as_json=as_json, uncounted=uncounted)
        if dry_run
        else command.apply(as_json=as_json, yes=yes, uncounted=uncounted)
    )
    raise typer.Exit(command.run({"policies": str(policies)}, work))


@app.command()
def destroy(  # noqa: PLR0913 - each is an option
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="First run a router until nothing waits: letters go where policies say.")
    ] = False,
    drain_seconds: Annotated[float, typer.Option(min=1, help="Drain no longer than this.")] = 600,
    with_journal: Annotated[
        bool, typer.Option("--with-journal", help="Remove the journal too, which explains every letter.")
    ] = False,
    yes: Annotated[bool, _YES] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go and what is in the way, remove nothing.")
    ] = False,
    uncounted: Annotated[bool, _UNCOUNTED] = False,
) -> None:
    """Take all of the router's but the journal away from the broker, or nothing where that would cost letters."""
    from dlx_router.cli import provisioning as command  # noqa: PLC0415 - see the module

    how = command.Removing(drain_seconds if drain else None, yes, dry_run, with_journal, uncounted)
    work = command.destroy(how, as_json=as_json)
    raise typer.Exit(command.run({"policies": str(policies)}, work))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    short_help="Run the router; --help lists every setting.",
)
def run(context: typer.Context) -> None:
    """Run the router. Its options are the settings, so they are made from them when this command is chosen."""
    from dlx_router.cli import run as command  # noqa: PLC0415 - see the module

    command.app(context.args)


for group in (*app.registered_groups, *archive_commands.app.registered_groups):
    group.cls = _Group
