"""`dlx-router searches`: filters of letters and groups that somebody named, for all who may look."""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from dlx_router.cli import names, output
from dlx_router.cli.letters import Json, Url, Vhost, reach
from dlx_router.cli.output import Id
from dlx_router.cli.timestamps import ago, moment_ms, shown

app = typer.Typer(help="Searches that people saved: see, save, delete.", invoke_without_command=True)

_COLUMNS: Final = ("name", "of", Id("vhost"), "by", "saved", "filter")
_VHOST: Final = typer.Option(help="In whose journal it is kept.", autocompletion=names.vhosts)
Name = Annotated[str, typer.Argument(help="What people find it by.")]


class Page(StrEnum):
    """Of which list."""

    LETTERS = "letters"
    GROUPS = "groups"


Of = Annotated[Page, typer.Option("--of", help="Letters or groups.")]


@app.callback()
def every(
    context: typer.Context,
    vhost: Vhost = None,
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Show saved searches; the console has them as links."""
    if context.invoked_subcommand is not None:
        return
    searches = reach(url).get("/searches", vhost=vhost)["searches"]
    if as_json:
        output.as_json(searches)
        return
    if not searches:
        output.say("No saved searches.")
        return
    output.table(_COLUMNS, [_row(search) for search in searches])


def _row(search: dict[str, Any]) -> tuple[str, ...]:
    return (
        search["name"],
        search["page"],
        search["vhost"],
        search["by"],
        ago(search["saved_ms"]),
        _words(search["filter"]),
    )


def _words(given: dict[str, Any]) -> str:
    fields = {
        name.removesuffix("_ms"): shown(value) if name.endswith("_ms") else str(value) for name, value in given.items()
    }
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "all"


@app.command()
def save(
    name: Name,
    filter_: Annotated[
        list[str],
        typer.Option("--filter", help="NAME=VALUE, as the API has it: queue=orders.new; may be given more than once."),
    ],
    of: Of = Page.LETTERS,
    vhost: Annotated[str, _VHOST] = "/",
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Save a search under a name; since and until are times, or how long ago."""
    body = {"name": name, "vhost": vhost, "page": of.value, "filter": dict(map(_field, filter_))}
    made = reach(url).ask("POST", "/searches", body=body)
    if as_json:
        output.as_json(made)
    else:
        output.say(f"{made['name']}: {_words(made['filter'])}")


def _field(text: str) -> tuple[str, str | int]:
    """A filter; ends the command with exit code 2 where it is none."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        output.warn(f"--filter {text!r}: write NAME=VALUE, as in queue=orders.new")
        raise typer.Exit(output.WRONG_USE)
    if name in {"since", "until"}:
        return f"{name}_ms", moment_ms(value, f"--filter {name}") or 0
    return name, value


@app.command()
def delete(
    name: Name,
    of: Of = Page.LETTERS,
    vhost: Annotated[str, _VHOST] = "/",
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Delete a saved search, for everybody."""
    api = reach(url)
    searches = api.get("/searches", vhost=vhost, page=of.value)["searches"]
    known = next((search["id"] for search in searches if search["name"] == name), None)
    if known is None:
        output.warn(f"no search of {of.value} is saved as {name!r} in vhost {vhost!r}; `dlx-router searches` shows all")
        raise typer.Exit(output.FINDINGS)
    gone = api.ask("DELETE", f"/searches/{known}", query={"vhost": vhost})
    if as_json:
        output.as_json(gone)
    else:
        output.say(f"{gone['name']}: deleted")
