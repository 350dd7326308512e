"""The commands. Each imports what it needs when it runs, so that help and completion are there at once.

Exit codes: 0 ok, 1 findings, 2 wrong use or unreadable path, 130 interrupted. Source: INTERFACES ("Commands").
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="dlx-router",
    help="Decides what happens to RabbitMQ messages after they failed, by policies in YAML.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
policy = typer.Typer(help="Check policies and see what they mean; needs no broker.", no_args_is_help=True)
app.add_typer(policy, name="policy")

_POLICIES = typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, by default that of the process; always ends by SystemExit."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")  # a queue's name may be of any bytes, a terminal of any encoding
    app(arguments, prog_name="dlx-router")


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


@policy.command()
def lint(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policy files, or one file.")
    ] = Path("policies"),
    form: Annotated[Format, typer.Option("--format", help="text: a line each; json: for programs.")] = Format.TEXT,
) -> None:
    """Check all policy files of a folder and show every finding at once; 1 where there is one."""
    from dlx_router.cli import lint as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run(path, as_json=form is Format.JSON))


@policy.command()
def explain(
    queue: Annotated[str, typer.Argument(help="Name of the queue whose messages fail.")],
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    vhost: Annotated[str, typer.Option(help="Vhost of the queue.")] = "/",
    reason: Annotated[
        str | None,
        typer.Option(help="Only for rejected, expired, maxlen, delivery_limit, application or application:NAME."),
    ] = None,
) -> None:
    """Show every key in force for a queue and who set it, the waits, and where its dead letters end."""
    from dlx_router.cli import explain as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run(queue, policies, vhost, reason))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    short_help="Run the router; --help lists every setting.",
)
def run(context: typer.Context) -> None:
    """Run the router. Its options are the settings, so they are made from them when this command is chosen."""
    from dlx_router.cli import run as command  # noqa: PLC0415 - see the module

    command.app(context.args)
