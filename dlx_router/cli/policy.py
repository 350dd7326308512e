"""`dlx-router policy`: what its commands take. What they need for their work they import inside; see cli/main."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dlx_router.cli import names

app = typer.Typer(help="Check policies and see what they mean; needs no broker.", no_args_is_help=True)
_POLICIES = typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")


class Report(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


class QueueType(StrEnum):
    """Types of queues whose messages can die."""

    CLASSIC = "classic"
    QUORUM = "quorum"


class Origin(StrEnum):
    """Systems whose policies can be imported."""

    RABBITMQ = "rabbitmq"
    ARTEMIS = "artemis"
    SQS = "sqs"
    YANDEX = "yandex"
    EMQ = "emq"


@app.command()
def lint(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policy files, or one file.")
    ] = Path("policies"),
    form: Annotated[
        Report,
        typer.Option("--format", help="text: a line each; json: for programs; github: for its workflows."),
    ] = Report.TEXT,
    *,
    broker: Annotated[
        bool, typer.Option("--broker", help="Look at the broker of DLX_ROUTER_MANAGEMENT_URL too.")
    ] = False,
) -> None:
    """Check all policy files of a folder and show every finding at once; 1 where there is one."""
    from dlx_router.cli import policy_checks  # noqa: PLC0415 - see main

    raise typer.Exit(policy_checks.lint(path, form, broker=broker))


@app.command()
def explain(  # noqa: PLR0913 - each is an option
    queue: Annotated[
        str, typer.Argument(help="Name of the queue whose messages fail.", autocompletion=names.failed_queues)
    ],
    policies: Annotated[Path, _POLICIES] = Path("policies"),
    vhost: Annotated[str, typer.Option(help="Vhost of the queue.")] = "/",
    reason: Annotated[
        str | None,
        typer.Option(help="Only for rejected, expired, maxlen, delivery_limit, application or application:NAME."),
    ] = None,
    queue_type: Annotated[
        QueueType | None,
        typer.Option(help="Type of the queue: shows policies that are for one type only, and its delivery limit."),
    ] = None,
    broker_version: Annotated[
        str, typer.Option(help="RabbitMQ's version there, whose defaults differ; with --queue-type.")
    ] = "4.3",
    *,
    only_set: Annotated[bool, typer.Option("--set", help="Only the keys that a policy sets.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show every key in force for a queue and who set it, the waits, and where its dead letters end."""
    from dlx_router.cli import policy_explain as command  # noqa: PLC0415 - see main

    if (version := command.version_of(broker_version)) is None:
        raise typer.BadParameter(f"{broker_version!r} is no version; write 3.10, 4.0 or 4.3")
    broker = command.Broker(queue_type.value if queue_type is not None else None, version)
    asked = command.Question(queue, vhost, reason, broker, only_set)
    raise typer.Exit(command.run(asked, policies, as_json=as_json))


@app.command()
def diff(
    was: Annotated[Path, typer.Argument(metavar="A", help="Before: folder of policy files, or one file.")],
    now: Annotated[Path, typer.Argument(metavar="B", help="After: the same.")],
    *,
    vhost: Annotated[str, typer.Option(help="Compare what this vhost obeys.")] = "/",
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="Look at this queue too, beside those that policies name; may be repeated.",
            autocompletion=names.failed_queues,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what two folders of policies say differently, by policy, queue and key; 1 where they differ."""
    from dlx_router.cli import policy_checks  # noqa: PLC0415 - see main

    raise typer.Exit(policy_checks.diff(policy_checks.Question(was, now, vhost, tuple(queues or ())), as_json=json))


@app.command("test")
def judge(
    path: Annotated[
        Path, typer.Argument(envvar="DLX_ROUTER_POLICIES", help="Folder of policies and tests, or one file of tests.")
    ] = Path("policies"),
) -> None:
    """Judge the letters of all *.test.yaml as the router would, and show each that is not as expected."""
    from dlx_router.cli import policy_checks  # noqa: PLC0415 - see main

    raise typer.Exit(policy_checks.test(path))


@app.command("import")
def import_(
    path: Annotated[
        Path, typer.Argument(help="definitions.json, broker.xml, queue attributes or redrive policies as JSON.")
    ],
    origin: Annotated[Origin, typer.Option("--from", help="The system that the file is from.")],
) -> None:
    """Write policies of another system in our language, and say on stderr what was not carried over, and why."""
    from dlx_router.cli import policy_import as command  # noqa: PLC0415 - see main

    raise typer.Exit(command.run(path, origin))


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from dlx_router.config.policy_files.json_schema import schema_text  # noqa: PLC0415 - see the module

    print(schema_text())
