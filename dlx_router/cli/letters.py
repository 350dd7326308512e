"""`dlx-router letters`: list, search, show, comment, export."""

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from dlx_router.cli import output, redrive
from dlx_router.cli.api import Api, segment
from dlx_router.cli.letter_history import drawn, place
from dlx_router.cli.options import Json, Limit, Queue, Url, Vhost
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, moment_ms, shown

app = typer.Typer(help="Look for letters, show one with its journey, export them.", no_args_is_help=True)

_COLUMNS: Final = (
    Id("id"), "last", "state", Id("failed queue"), "reason", Number("attempts"), Number("redrives"), Id("lies at"),
    Id("group"),
)  # fmt: skip
RETURN: Final = ".return"  # the exchange by which letters go back to where they failed
LetterId = Annotated[str, typer.Argument(help="Id of the letter.")]
_FILTERS: Final = {
    "vhost": Vhost,
    "queue": Queue,
    "group": Annotated[str | None, typer.Option(help="Only of this group.")],
    "state": Annotated[list[str] | None, typer.Option(help="Only in this state; may be given more than once.")],
    "reason": Annotated[str | None, typer.Option(help="Only that failed for this reason.")],
    "policy": Annotated[str | None, typer.Option(help="Only that this policy decided about.")],
    "since": Annotated[str | None, typer.Option(help="Not older: a time (2026-01-31T12:00Z), or how long ago (2h).")],
    "until": Annotated[str | None, typer.Option(help="Older than this.")],
}


def _filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that filter letters; it takes them as **filters."""
    own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _FILTERS.items()
    ]
    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    return command


def _query(filters: dict[str, Any]) -> dict[str, Any]:
    since, until = (moment_ms(filters.pop(name), f"--{name}") for name in ("since", "until"))
    return {**filters, "since_ms": since, "until_ms": until}


@app.command("list")
@_filtered
def every(*, limit: Limit = 50, url: Url = None, as_json: Json = False, **filters: Any) -> None:  # noqa: ANN401 - options
    """Show letters, those that came last first."""
    _print(Api(url), _query(filters), limit, as_json=as_json)


@app.command()
@_filtered
def search(
    text: Annotated[str, typer.Argument(help='Words that all must be there; "a phrase"; begin*.')],
    *,
    limit: Limit = 50,
    url: Url = None,
    as_json: Json = False,
    **filters: Any,  # noqa: ANN401 - options
) -> None:
    """Find letters by ids, keys, error, values that the journal shows, and the start of a body that it has."""
    _print(Api(url), {**_query(filters), "q": text}, limit, as_json=as_json)


@app.command()
def show(
    letter: LetterId,
    *,
    queue: Queue = None,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="The body as bytes.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show one letter: where it is, its journey of deaths, waits and redrives, and its body as far as known."""
    form = "hex" if hexadecimal else "auto"
    letters = Api(url).get(f"/letters/{segment(letter)}", queue=queue, form=form)["letters"]
    if as_json:
        output.as_json(letters)
        return
    for entry in letters:
        output.say(*drawn(entry))


@app.command()
def comment(
    letter: LetterId,
    text: Annotated[str, typer.Argument(help="What others are to know, at most 2000 characters; - reads stdin.")],
    *,
    queue: Queue = None,
    vhost: Vhost = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Note something on a letter, for whoever looks at it next. It stands in the journal: write no secrets."""
    note = (sys.stdin.read() if text == "-" else text).strip()
    if not note:
        raise typer.BadParameter("is empty; write what others are to know", param_hint="TEXT")
    asked = {name: value for name, value in (("queue", queue), ("vhost", vhost)) if value is not None}
    answer = Api(url).ask("POST", f"/letters/{segment(letter)}/comments", query=asked, body={"text": note})
    if as_json:
        output.as_json(answer)
    else:
        output.say(f"{letter}: noted")


@app.command()
@_filtered
def export(  # noqa: PLR0913 - each is an option
    *,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; without it standard output.")
    ] = None,
    text: Annotated[str | None, typer.Option("--search", help="Only what `letters search` finds by this.")] = None,
    limit: Limit = 0,
    full: Annotated[bool, typer.Option(help="With journey, newest event and body; a request each.")] = False,
    source: Annotated[
        str | None, typer.Option("--from", help="Instead of the index, the letters as they lie in this queue.")
    ] = None,
    condition: Annotated[
        str, typer.Option("--filter", help="With --from: only letters of which this holds (CEL).")
    ] = "",
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="With --from: only this letter; may be repeated.")
    ] = None,
    known: Annotated[
        bool, typer.Option("--not-a-dead-letter-queue", help="With --from: you know that somebody consumes the queue.")
    ] = False,
    url: Url = None,
    **filters: Any,  # noqa: ANN401 - options
) -> None:
    """Write letters as JSON, one a line: what the index knows, newest first; or a queue's (--from), in its order."""
    api = Api(url)
    if source is not None:
        vhost, group = filters.pop("vhost"), filters.pop("group")
        if wrong := [f"--{name}" for name, value in {"search": text, **filters, "full": full}.items() if value]:
            raise typer.BadParameter(f"not with {', '.join(wrong)}; say it as --filter", param_hint="--from")
        narrowed = {"filter": condition, "group": group, "ids": ids, "limit": limit}
        asked = {"queue": source, "vhost": vhost or "/", "not_a_dead_letter_queue": known}
        asked |= {name: value for name, value in narrowed.items() if value}
        part = None if to is None else to.with_name(f"{to.name}.part")  # has its name once it is whole
        with _opened(part) as file:
            code = redrive.export_queue(api, asked, file)
        if to is not None and part is not None and code == output.OK:
            part.replace(to)
        raise typer.Exit(code)
    if condition or ids:
        raise typer.BadParameter("goes with --from QUEUE", param_hint="--filter, --id")
    count = 0
    with _opened(to) as file:
        for summary in api.pages("/letters", "letters", "cursor", limit, q=text, **_query(filters)):
            of_queue = {"queue": summary["failed_queue"]}
            for letter in api.get(f"/letters/{segment(summary['id'])}", **of_queue)["letters"] if full else [summary]:
                file.write(f"{json.dumps(letter, separators=(',', ':'))}\n")
                count += 1
    if to is not None:
        output.warn(f"{output.number(count, 'letter')} → {to}")


@contextlib.contextmanager
def _opened(to: Path | None) -> Iterator[IO[str]]:
    if to is None:
        yield sys.stdout
        return
    try:
        with to.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        output.warn(f"{to}: {error.strerror}; name a file that can be written")
        raise typer.Exit(output.WRONG_USE) from None


def _print(api: Api, query: dict[str, Any], limit: int, *, as_json: bool) -> None:
    letters = list(api.pages("/letters", "letters", "cursor", limit, **query))
    if not letters and query["group"]:
        api.get(f"/groups/{segment(query['group'])}")  # ends the command where there is no such group
    if as_json:
        output.as_json(letters)
    elif not letters:
        output.say(api.nothing("No letters."))
    else:
        output.table(_COLUMNS, [_row(letter) for letter in letters])
        if limit and len(letters) == limit:
            output.warn(f"The newest {limit}; --limit 0 shows all.")


def _row(letter: dict[str, Any]) -> tuple[str, ...]:
    reason = letter["reason"] + (f" ({letter['cause']})" if letter["cause"] else "")
    counts = (str(letter["attempts"]), str(letter["redrives"]))
    rest = (letter["failed_queue"], reason, *counts, _lies(letter), letter["group"])
    return (letter["id"], ago(letter["last_ms"]), letter["state"], *rest)


def _lies(letter: dict[str, Any]) -> str:
    """Where it is, as far as the index knows: whoever consumes there has it by now, maybe."""
    if letter["target"]:
        return place(**letter["target"])
    if sent := letter.get("sent_to"):
        return letter["failed_queue"] if sent["exchange"].endswith(RETURN) else place(**sent)
    waits = letter["state"] in {"retrying", "held"} and letter["due_ms"] is not None
    return f"until {shown(letter['due_ms'])}" if waits else "–"
