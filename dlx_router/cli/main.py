"""The commands. Each imports what it needs when it runs, so that help and completion are there at once.

Exit codes: 0 ok, 1 findings, 2 wrong use or unreadable path, 130 interrupted. Source: INTERFACES ("Commands").
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dlx_router.cli import pipeline, pipeline_analyses

app = typer.Typer(
    name="dlx-router",
    help="Decides what happens to RabbitMQ messages after they failed, by policies in YAML.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
policy = typer.Typer(help="Check policies and see what they mean; needs no broker.", no_args_is_help=True)
app.add_typer(policy, name="policy")
pipeline_analyses.add_to(pipeline.app)
app.add_typer(pipeline.app, name="pipeline")

_POLICIES = typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


class Report(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


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
    form: Annotated[
        Report,
        typer.Option("--format", help="text: a line each; json, sarif: for programs; github: for its workflows."),
    ] = Report.TEXT,
) -> None:
    """Check all policy files of a folder and show every finding at once; 1 where there is one."""
    from dlx_router.cli import lint as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run(path, form))


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


@app.command()
def permissions(
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    user: Annotated[str | None, typer.Option(help="The router's user; without it that of AMQP_URL.")] = None,
    form: Annotated[
        Format, typer.Option("--format", help="text: for a shell and for people; json: a definitions file.")
    ] = Format.TEXT,
) -> None:
    """Show the least rights that the router's user needs, as the settings and policies ask for them."""
    from dlx_router.cli import permissions as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run({"policies": str(policies)}, user, as_json=form is Format.JSON))


@policy.command("test")
def judge(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policies and tests, or one file of tests.")
    ] = Path("policies"),
) -> None:
    """Judge the letters of all *.test.yaml as the router would, and show each that is not as expected."""
    from dlx_router.cli import policytest as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run(path))


@policy.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from dlx_router.config.schema import schema_text  # noqa: PLC0415 - see the module

    print(schema_text())


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    short_help="Run the router; --help lists every setting.",
)
def run(context: typer.Context) -> None:
    """Run the router. Its options are the settings, so they are made from them when this command is chosen."""
    from dlx_router.cli import run as command  # noqa: PLC0415 - see the module

    command.app(context.args)
