"""`dlx-router webhooks test`."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlx_router.cli import output
from dlx_router.cli.output import Id, Number

if TYPE_CHECKING:
    from dlx_router.config.environment.settings import Settings
    from dlx_router.config.webhooks.endpoint import Endpoint
    from dlx_router.webhooks.sender import Answer

app = typer.Typer(help="Who is told what happens, by HTTP requests to chats and programs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """As the help says; with one command only typer would make the group that command."""


@app.command("test")
def send_test(
    name: Annotated[str | None, typer.Argument(help="Only this webhook.")] = None,
    path: Annotated[
        Path | None, typer.Option("--file", help="File of the webhooks.", envvar="DLX_ROUTER_WEBHOOKS_FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Send a message to each webhook of the file and say what came back; 1 where one did not take it."""
    import asyncio  # noqa: PLC0415 - see cli/main

    from dlx_router.config.environment.settings import Settings, SettingsError  # noqa: PLC0415 - as above
    from dlx_router.config.findings import PolicyErrors, nearest, shown  # noqa: PLC0415 - as above
    from dlx_router.config.webhooks.file import load  # noqa: PLC0415 - as above

    if path is None:
        raise typer.Exit(output.wrong_use("no file of webhooks; set DLX_ROUTER_WEBHOOKS_FILE or write --file FILE"))
    try:
        settings, endpoints = Settings.load(), load(path)
    except SettingsError as error:
        raise typer.Exit(output.wrong_use(error)) from None
    except PolicyErrors as error:
        raise typer.Exit(output.refuse(error)) from None
    if name is not None and name not in endpoints:
        known = nearest(name, endpoints) or f"; there are: {', '.join(endpoints)}"
        raise typer.Exit(output.wrong_use(f"no webhook {shown(name)} in {path}{known}"))
    chosen = [endpoint for endpoint in endpoints.values() if name in {None, endpoint.name}]
    answers = asyncio.run(_asked(settings, chosen))
    _print(chosen, answers, as_json=as_json)
    raise typer.Exit(output.OK if all(answer.taken for answer in answers) else output.FINDINGS)


async def _asked(settings: "Settings", endpoints: "Iterable[Endpoint]") -> "list[Answer]":
    """Of each, in their order; all at once, because some may hang."""
    import asyncio  # noqa: PLC0415 - see cli/main

    from dlx_router.core.notices import TEST, Message  # noqa: PLC0415 - as above
    from dlx_router.telemetry.wall_clock import wall_ms  # noqa: PLC0415 - as above
    from dlx_router.webhooks.sender import Sender  # noqa: PLC0415 - as above

    sender = Sender(settings.prefix, settings.console_url, settings.http_port)
    messages = (
        (endpoint, Message(f"msg_{secrets.token_hex(16)}", TEST, "", wall_ms(), 1, ())) for endpoint in endpoints
    )
    return await asyncio.gather(*(sender.send(endpoint, message) for endpoint, message in messages))


def _print(endpoints: "list[Endpoint]", answers: "list[Answer]", *, as_json: bool) -> None:
    pairs = list(zip(endpoints, answers, strict=True))
    if as_json:
        shown = ("taken", "status", "why", "refused", "took_ms", "text")
        output.as_json(
            [{"name": to.name, "host": to.host, **{key: getattr(a, key) for key in shown}} for to, a in pairs]
        )
        return
    rows = [(to.name, to.host, to.format, _result(answer), _took(answer), answer.text) for to, answer in pairs]
    output.table((Id("webhook"), Id("host"), "format", "came back", Number("took"), "it says"), rows)


def _took(answer: "Answer") -> str:
    return "" if answer.refused else f"{answer.took_ms} ms"


def _result(answer: "Answer") -> str:
    return f"taken (HTTP {answer.status})" if answer.taken else answer.why
