"""`dlx-router webhooks test`."""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.options import Json
from dlx_router.cli.output import Id, Number
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.findings import nearest, shown
from dlx_router.config.webhooks.endpoint import Endpoint
from dlx_router.config.webhooks.file import load
from dlx_router.core.notices import TEST, Message
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks.sender import Answer, Sender

app = typer.Typer(help="Who is told what happens, by HTTP requests to chats and programs.", no_args_is_help=True)
COLUMNS: Final = (Id("webhook"), Id("host"), "format", "came back", Number("took"), "it says")
MEMBERS: Final = ("taken", "status", "why", "refused", "took_ms", "text")


@app.callback()
def _group() -> None:
    """As the help says; with one command only typer would make the group that command."""


@app.command("test")
def send_test(
    name: Annotated[str | None, typer.Argument(help="Only this webhook.")] = None,
    *,
    path: Annotated[
        Path | None, typer.Option("--file", help="File of the webhooks.", envvar="DLX_ROUTER_WEBHOOKS_FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Send a message to each webhook of the file and say what came back; 1 where one did not take it."""
    if path is None:
        raise SettingsError("no file of webhooks; set DLX_ROUTER_WEBHOOKS_FILE or write --file FILE")
    settings, endpoints = Settings.load(), load(path)
    if name is not None and name not in endpoints:
        known = nearest(name, endpoints) or f"; there are: {', '.join(endpoints)}"
        raise SettingsError(f"no webhook {shown(name)} in {path}{known}")
    chosen = [endpoint for endpoint in endpoints.values() if name in {None, endpoint.name}]
    answers = asyncio.run(_asked(settings, chosen))
    pairs = list(zip(chosen, answers, strict=True))
    if as_json:
        output.as_json(
            [{"name": to.name, "host": to.host, **{key: getattr(a, key) for key in MEMBERS}} for to, a in pairs]
        )
    else:
        output.table(COLUMNS, [_row(*pair) for pair in pairs])
    raise typer.Exit(output.OK if all(answer.taken for answer in answers) else output.FINDINGS)


async def _asked(settings: Settings, endpoints: Sequence[Endpoint]) -> list[Answer]:
    """Of each, in their order; all at once, because some may hang."""
    sender = Sender(settings.prefix, settings.console_url, settings.http_port)
    messages = (Message(f"msg_{secrets.token_hex(16)}", TEST, "", wall_ms(), 1, ()) for _ in endpoints)
    return await asyncio.gather(*map(sender.send, endpoints, messages))


def _row(to: Endpoint, answer: Answer) -> tuple[str, ...]:
    result = f"taken (HTTP {answer.status})" if answer.taken else answer.why
    return to.name, to.host, to.format, result, "" if answer.refused else f"{answer.took_ms} ms", answer.text
