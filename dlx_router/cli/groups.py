"""`dlx-router groups` and `dlx-router queues`."""

from typing import Annotated, Any, Final

import typer

from dlx_router.cli import names, output
from dlx_router.cli.layout import Id, Number, Sentence
from dlx_router.cli.letters import Json, Queue, Url, Vhost, reach, where
from dlx_router.cli.timestamps import ago, moment_ms, shown
from dlx_router.config.units import duration_ms
from dlx_router.telemetry.wall_clock import wall_ms

app = typer.Typer(help="Letters that died of the same thing: see, ignore, resolve, note.", invoke_without_command=True)

_COLUMNS: Final = (
    Id("id"), Id("failed queue"), "reason", "state", Number("lying"), Number("deaths"), "last", Sentence("error"),
)  # fmt: skip
_LYING: Final = (Id("lies at"), Id("vhost"), Number("index"), Number("queue"), Number("drift"), "looked")
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Note = Annotated[str | None, typer.Option(help="Why; kept with the group.")]
GroupId = Annotated[str, typer.Argument(help="Id of the group, g1-….", autocompletion=names.groups)]


@app.callback()
def every(  # noqa: PLR0913, PLR0917 - each is an option
    context: typer.Context,
    vhost: Vhost = None,
    queue: Queue = None,
    state: Annotated[str | None, typer.Option(help="Only open, ignored or resolved ones.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")] = 50,
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Show groups, those that had a death last first."""
    if context.invoked_subcommand is not None:
        return
    found = list(reach(url).pages("/groups", "groups", "offset", limit, vhost=vhost, queue=queue, state=state))
    if as_json:
        output.as_json(found)
        return
    if not found:
        output.say("No groups.")
        return
    output.table(_COLUMNS, [_row(one) for one in found])


def _facts(one: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(one["states"].items()))
    return (
        ("failed queue", f"{one['failed_queue']} (vhost {one['vhost']})"),
        ("reason", one["reason"]),
        ("error", _error(one)),
        ("at", one["frame"] or ""),
        ("deaths", str(one["deaths"])),
        ("letters", states),
        ("lying", str(one["lying"])),
        ("first", f"{shown(one['first_ms'])} ({ago(one['first_ms'])})"),
        ("last", f"{shown(one['last_ms'])} ({ago(one['last_ms'])})"),
        ("note", one["note"] or ""),
        ("by", one["actor"] or ""),
    )


def _error(one: dict[str, Any]) -> str:
    return ": ".join(part for part in (one["error_type"], one["message"]) if part)


def _state(one: dict[str, Any]) -> str:
    state = one["state"] + (f" until {shown(one['until_ms'])}" if one["until_ms"] else "")
    return f"{state} (returned)" if one["returned"] else str(state)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(one["lying"]), str(one["deaths"]))
    error, state = _error(one) or "–", _state(one)
    return (one["id"], one["failed_queue"], one["reason"], state, *counts, ago(one["last_ms"]), error)


@app.command()
def show(group: GroupId, url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Show one group."""
    one = reach(url).get(f"/groups/{group}")
    if as_json:
        output.as_json(one)
        return
    output.say(f"Group {group}: {_state(one)}", ids=[group])
    output.facts(_facts(one), ids=[one["failed_queue"], one["vhost"]])


@app.command()
def ignore(
    group: GroupId,
    until: Annotated[
        str | None, typer.Option(help="A time, or for how long (2d); without it until it is opened.")
    ] = None,
    note: Note = None,
    yes: Yes = False,  # noqa: FBT002 - typer makes a flag of it
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Show it among the ignored ones, until then. Its letters are not touched."""
    _change(group, {"state": "ignored", "until_ms": _later(until)}, note, url, yes=yes, as_json=as_json)


@app.command()
def resolve(group: GroupId, note: Note = None, yes: Yes = False, url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Its cause is gone; it opens by itself when another letter dies of it."""
    _change(group, {"state": "resolved"}, note, url, yes=yes, as_json=as_json)


@app.command("open")
def reopen(group: GroupId, note: Note = None, yes: Yes = False, url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Open it again."""
    _change(group, {"state": "open"}, note, url, yes=yes, as_json=as_json)


def _later(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return wall_ms() + duration_ms(text)
    except ValueError:
        return moment_ms(text, "--until")


def _change(group: str, wanted: dict[str, Any], note: str | None, url: str | None, *, yes: bool, as_json: bool) -> None:
    api = reach(url)
    one = api.get(f"/groups/{group}")
    said = f"{wanted['state']}: {one['failed_queue']}, {one['reason']} {one['error_type']} {one['message']}".strip()
    lying = output.number(one["lying"], "letter lies", "letters lie")
    if not yes and not output.confirmed(f"{said}; {lying} there. Do it?"):
        output.warn("Nothing was changed.")
        raise typer.Exit(output.FINDINGS)
    body = {key: value for key, value in wanted.items() if value is not None} | ({} if note is None else {"note": note})
    changed = api.ask("PATCH", f"/groups/{group}", body=body)
    if as_json:
        output.as_json(changed)
    else:
        output.say(f"{changed['id']}: {changed['state']}")


def queues(url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Show where letters failed, and where they lie; "drift" is what the index counts more than the queue holds."""
    found = reach(url).get("/queues")
    if as_json:
        output.as_json(found)
        return
    for said in unverified(found.get("signatures") or {}):  # absent where the router is older
        output.warn(said)
    if not found["failed"]:
        output.say("No letters.")
        return
    states = sorted({state for one in found["failed"] for state in one["states"]})
    rows = [
        (
            one["failed_queue"],
            one["vhost"],
            *(str(one["states"].get(state, 0)) for state in states),
            ago(one["last_ms"]),
        )
        for one in found["failed"]
    ]
    output.table((Id("failed queue"), Id("vhost"), *map(Number, states), "last"), rows)
    if found["lying"]:
        output.say("")
        output.table(_LYING, [_lying(one) for one in found["lying"]])


def unverified(signatures: dict[str, dict[str, int]]) -> list[str]:
    """What is to be said of events that no router is known to have written."""
    said = []
    for vhost, counts in sorted(signatures.items()):
        others = {name: n for name, n in sorted(counts.items()) if name != "ok"}
        if others:
            told = ", ".join(f"{n} {name}" for name, n in others.items())
            events = output.number(sum(others.values()), "event")
            said.append(f"vhost {vhost!r}: {events} of the journal not verified ({told})")
    return said


def _lying(one: dict[str, Any]) -> tuple[str, ...]:
    name = one["queue"] or where(one)
    depth, drift = ("?" if one[key] is None else str(one[key]) for key in ("depth", "drift"))
    return (name, one["vhost"], str(one["indexed"]), depth, drift, ago(one["checked_ms"]))
