"""`dlx-router groups` and `dlx-router queues`."""

from typing import Annotated, Any, Final

import typer

from dlx_router.cli import names, output
from dlx_router.cli.letters import Json, Queue, Url, Vhost, reach, where
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, moment_ms, shown
from dlx_router.config.units import duration_ms
from dlx_router.telemetry.wall_clock import wall_ms

app = typer.Typer(help="Letters that died of the same thing: see, ignore, resolve, note.", invoke_without_command=True)

_COLUMNS: Final = (
    Id("id"), Id("failed queue"), "reason", "state", Number("lying"), Number("deaths"), "last", "error",
)  # fmt: skip
_LYING: Final = (Id("lies at"), Id("vhost"), Number("index"), Number("queue"), "looked")
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
    api = reach(url)
    groups = list(api.pages("/groups", "groups", "offset", limit, vhost=vhost, queue=queue, state=state))
    if as_json:
        output.as_json(groups)
        return
    if not groups:
        output.say(api.nothing("No groups."))
        return
    output.table(_COLUMNS, [_row(group) for group in groups])


def _facts(group: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    states = ", ".join(f"{count} {state}" for state, count in sorted(group["states"].items()))
    return (
        ("failed queue", f"{group['failed_queue']} (vhost {group['vhost']})"),
        ("reason", group["reason"]),
        ("error", _error(group)),
        ("at", group["frame"] or ""),
        ("deaths", str(group["deaths"])),
        ("letters", states),
        ("lying", str(group["lying"])),
        ("first", f"{shown(group['first_ms'])} ({ago(group['first_ms'])})"),
        ("last", f"{shown(group['last_ms'])} ({ago(group['last_ms'])})"),
        ("note", group["note"] or ""),
        ("by", group["actor"] or ""),
    )


def _error(group: dict[str, Any]) -> str:
    return ": ".join(part for part in (group["error_type"], group["message"]) if part)


def _state(group: dict[str, Any]) -> str:
    state = group["state"] + (f" until {shown(group['until_ms'])}" if group["until_ms"] else "")
    return f"{state} (returned)" if group["returned"] else str(state)


def _row(group: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(group["lying"]), str(group["deaths"]))
    error, state = _error(group) or "–", _state(group)
    return (group["id"], group["failed_queue"], group["reason"], state, *counts, ago(group["last_ms"]), error)


@app.command()
def show(group: GroupId, url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Show one group."""
    answer = reach(url).get(f"/groups/{group}")
    if as_json:
        output.as_json(answer)
        return
    output.say(f"Group {group}: {_state(answer)}")
    output.facts(_facts(answer))


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
    old = api.get(f"/groups/{group}")
    summary = f"{wanted['state']}: {old['failed_queue']}, {old['reason']} {old['error_type']} {old['message']}".strip()
    lying = output.number(old["lying"], "letter lies", "letters lie")
    if not yes and not output.confirmed(f"{summary}; {lying} there. Do it?"):
        output.warn("Nothing was changed.")
        raise typer.Exit(output.FINDINGS)
    body = {key: value for key, value in wanted.items() if value is not None} | ({} if note is None else {"note": note})
    changed = api.ask("PATCH", f"/groups/{group}", body=body)
    if as_json:
        output.as_json(changed)
    else:
        output.say(f"{changed['id']}: {changed['state']}")


def queues(url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Show where letters failed, and where they lie: how many the index counts, and the queue holds."""
    api = reach(url)
    answer = api.get("/queues")
    if as_json:
        output.as_json(answer)
        return
    for line in unverified(answer.get("signatures") or {}):  # absent where the router is older
        output.warn(line)
    if not answer["failed"]:
        output.say(api.nothing("No letters."))
        return
    states = sorted({state for queue in answer["failed"] for state in queue["states"]})
    rows = [
        (
            queue["failed_queue"],
            queue["vhost"],
            *(str(queue["states"].get(state, 0)) for state in states),
            ago(queue["last_ms"]),
        )
        for queue in answer["failed"]
    ]
    output.table((Id("failed queue"), Id("vhost"), *map(Number, states), "last"), rows)
    if answer["lying"]:
        output.say("")
        output.table(_LYING, [_lying(place) for place in answer["lying"]])


def unverified(signatures: dict[str, dict[str, int]]) -> list[str]:
    """What is to be said of events that no router is known to have written."""
    lines = []
    for vhost, counts in sorted(signatures.items()):
        others = {name: n for name, n in sorted(counts.items()) if name != "ok"}
        if others:
            details = ", ".join(f"{n} {name}" for name, n in others.items())
            events = output.number(sum(others.values()), "event")
            lines.append(f"vhost {vhost!r}: {events} of the journal not verified ({details})")
    return lines


def _lying(place: dict[str, Any]) -> tuple[str, ...]:
    name = place["queue"] or where(place)
    depth = "?" if place["depth"] is None else str(place["depth"])
    return (name, place["vhost"], str(place["indexed"]), depth, ago(place["checked_ms"]))
