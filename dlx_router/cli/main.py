"""The command line. A command's module is imported when the command is chosen, so that help is there at once.

Exit codes: 0 ok, 1 findings, 2 wrong use or unreadable path, 130 interrupted. See
docs/architecture.md ("Frozen names").
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from dlx_router.telemetry import faults

_STDERR = 2
_CLICK: Any = typer.BadParameter.__mro__[2]  # ClickException; typer brings a click of its own
_POLICY: Final = {
    "lint": ("policy:lint", "Check all policy files of a folder; 1 where there is a finding."),
    "explain": ("policy_explain:explain", "Show every key in force for a queue, the waits, and where letters end."),
    "diff": ("policy:diff", "Show what two folders of policies say differently; 1 where they differ."),
    "test": ("policy:judge", "Judge the letters of all *.test.yaml, and show each that is not as expected."),
    "import": ("policy_import:import_", "Write policies of another system in our language."),
    "schema": ("policy:schema", "Print the JSON Schema of policy files, for editors."),
}
# name: module and function, or a group of commands; a line of help. In the order of the help: what changes letters
# comes after what looks at them.
COMMANDS: Final[Mapping[str, tuple[str | Mapping[str, tuple[str, str]], str]]] = {
    "run": ("run:app", "Run the router; --help lists every setting."),
    "policy": (_POLICY, "Check policies and see what they mean; needs no broker."),
    "plan": ("provisioning:plan", "Show what the broker lacks for the policies; 1 where something differs."),
    "apply": ("provisioning:apply", "Make the broker send dead letters to the router, as the policies say."),
    "destroy": ("provisioning:destroy", "Take all of the router's away from the broker; nothing that costs letters."),
    "permissions": ("permissions:permissions", "Show the least rights that the user of a command needs."),
    "doctor": ("doctor:doctor", "Look at broker, rights and queues, and say what is wrong and what mends it."),
    "status": ("status:status", "Say whether the router is ready, its policies, vhosts and index; 1: not ready."),
    "queues": ("groups:queues", "Show where letters failed, and where they lie."),
    "groups": ("groups:app", "Letters that died of the same thing: see, ignore, resolve, note."),
    "letters": ("letters:app", "Look for letters, show one with its journey, export them."),
    "redrive": ("redrive:app", "Send dead letters back: filtered, paced, and stopped when it does not help."),
    "edit": ("redrive:edit", "Change one letter and send it back."),
    "discard": ("redrive:discard", "Delete dead letters for good."),
    "audits": ("status:audits", "Show who did what to letters, groups and tasks, the newest first."),
    "console": ("console:console", "Serve web pages: what dies and why, letters, redrives."),
    "webhooks": ("webhooks:app", "Who is told what happens, by HTTP requests to chats and programs."),
    "pipeline": ("pipeline.archive_commands:app", "The journal's archive on Spark: analyses, backtests, redrive."),
    "support-bundle": ("bundle:bundle", "Write what somebody who helps you needs into a zip file; no secrets."),
}


class Group(TyperGroup):
    """A group whose help shows the whole first sentence about each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - typer brings a click of its own
        """Write the names with a sentence about each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(500)) for name, command in self.commands.items()])


class Commands(TyperGroup):
    """Commands of a table; each is imported when it is asked for. What a user can correct ends with 1 or 2."""

    table: Mapping[str, tuple[Any, str]] = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer brings a click of its own
        """Return their names."""
        return [*self.table]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - as above
        """Return a command; None: there is none of the name."""
        if cmd_name not in self.commands and cmd_name in self.table:
            self.commands[cmd_name] = _command(cmd_name, *self.table[cmd_name])
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Write the names with a line about each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run a command; errors that say what to do are printed."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, _CLICK):
            raise
        except Exception as error:
            if (code := _explained(error)) is None:
                raise
            raise typer.Exit(code) from None


def _command(name: str, where: Any, text: str) -> Any:  # noqa: ANN401 - a table, or module:attribute
    if isinstance(where, Mapping):
        group = typer.Typer(cls=type("Inner", (Commands,), {"table": where}), help=text, no_args_is_help=True)
        group.callback()(lambda: None)
    else:
        module, _, attribute = where.partition(":")
        target = getattr(import_module(f"dlx_router.cli.{module}"), attribute)
        group = target if isinstance(target, typer.Typer) else typer.Typer()
        if group is not target:
            group.command(name)(target)
        group.info.cls = Group
    if name == "pipeline":
        from dlx_router.cli.pipeline import analysis_commands, table_commands  # noqa: PLC0415 - see the module

        analysis_commands.add_to(group)
        table_commands.add_to(group)
    group.rich_markup_mode = None  # what is drawn in boxes is cut: options, variables, addresses
    group._add_completion = False  # noqa: SLF001 - the whole has it
    return typer.main.get_command(group)


def _explained(error: Exception) -> int | None:
    """Print an error that the user can correct, and return the exit code; None for any other."""
    from dlx_router.broker.control import TopologyError  # noqa: PLC0415 - see the module
    from dlx_router.broker.management import ManagementError  # noqa: PLC0415 - as above
    from dlx_router.cli import output  # noqa: PLC0415 - as above
    from dlx_router.config.environment.prefix import PrefixError  # noqa: PLC0415 - as above
    from dlx_router.config.environment.settings import SettingsError  # noqa: PLC0415 - as above
    from dlx_router.config.findings import PolicyErrors  # noqa: PLC0415 - as above

    if isinstance(error, PolicyErrors):
        return output.refuse(error)
    if isinstance(error, SettingsError | PrefixError | ManagementError | TopologyError):
        return output.wrong_use(str(error).removesuffix("; it is tried again"))  # a router does that, a command ends
    return None


app = typer.Typer(
    name="dlx-router",
    cls=Commands,
    help="Decides what happens to RabbitMQ messages after they failed, by policies in YAML.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)


def program() -> Any:  # noqa: ANN401 - as above
    """Return the whole as a group of which each command is imported."""

    def imported(command: Any) -> Any:  # noqa: ANN401 - as above
        for name in getattr(command, "table", ()):
            imported(command.get_command(None, name))
        return command

    return imported(typer.main.get_command(app))


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
