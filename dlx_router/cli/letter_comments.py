"""`dlx-router letters comment`: what somebody notes on a letter."""

import sys
from typing import Annotated

import typer

from dlx_router.cli import names, output
from dlx_router.cli.letters import Json, Queue, Url, Vhost, reach, segment
from dlx_router.cli.timestamps import shown


def comment(
    letter: Annotated[str, typer.Argument(help="Id of the letter.", autocompletion=names.letters)],
    text: Annotated[str, typer.Argument(help="What others are to know, at most 2000 characters; - reads stdin.")],
    queue: Queue = None,
    vhost: Vhost = None,
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Note something on a letter, for whoever looks at it next. It stands in the journal: write no secrets."""
    note = (sys.stdin.read() if text == "-" else text).strip()
    if not note:
        raise typer.BadParameter("is empty; write what others are to know", param_hint="TEXT")
    asked = {name: value for name, value in (("queue", queue), ("vhost", vhost)) if value is not None}
    answer = reach(url).ask("POST", f"/letters/{segment(letter)}/comments", query=asked, body={"text": note})
    if as_json:
        output.as_json(answer)
        return
    last = answer["comments"][-1:]
    at = f", {shown(last[0]['ts_ms'])} by {last[0]['actor']}" if last else ""
    output.say(f"{letter}: noted{at}")
