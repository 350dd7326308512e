"""`dlx-router groups` and `dlx-router queues`."""

from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.api import Api
from dlx_router.cli.letter_history import place
from dlx_router.cli.options import Json, Limit, Queue, Url, Vhost, Yes
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, moment_ms, shown

app = typer.Typer(help="Letters that died of the same thing: see, ignore, resolve, note.", invoke_without_command=True)

_COLUMNS: Final = (
    Id("id"), Id("failed queue"), "reason", "state", Number("lying"), Number("deaths"), "last", "error",
)  # fmt: skip
_LYING: Final = (Id("lies at"), Id("vhost"), Number("index"), Number("queue"), "looked")
Note = Annotated[str | None, typer.Option(help="Why; kept with the group.")]
GroupId = Annotated[str, typer.Argument(help="Id of the group, g1-….")]


@app.callback()
def every(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    *,
    vhost: Vhost = None,
    queue: Queue = None,
    state: Annotated[str | None, typer.Option(help="Only open, ignored or resolved ones.")] = None,
    limit: Limit = 50,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show groups, those that had a death last first."""
    if context.invoked_subcommand is not None:
        return
    api = Api(url)
    groups = list(api.pages("/groups", "groups", "offset", limit, vhost=vhost, queue=queue, state=state))
    if as_json:
        output.as_json(groups)
    elif not groups:
        output.say(api.nothing("No groups."))
    else:
        output.table(_COLUMNS, [_row(group) for group in groups])


def _error(group: dict[str, Any]) -> str:
    return ": ".join(part for part in (group["error_type"], group["message"]) if part)


def _state(group: dict[str, Any]) -> str:
    state = group["state"] + (f" until {shown(group['until_ms'])}" if group["until_ms"] else "")
    return f"{state} (returned)" if group["returned"] else str(state)


def _row(group: dict[str, Any]) -> tuple[str, ...]:
    counts = (str(group["lying"]), str(group["deaths"]))
    rest = (_state(group), *counts, ago(group["last_ms"]), _error(group) or "–")
    return (group["id"], group["failed_queue"], group["reason"], *rest)


@app.command()
def show(group: GroupId, *, url: Url = None, as_json: Json = False) -> None:
    """Show one group."""
    answer = Api(url).get(f"/groups/{group}")
    if as_json:
        output.as_json(answer)
        return
    output.say(f"Group {group}: {_state(answer)}")
    output.facts(
        (
            ("failed queue", f"{answer['failed_queue']} (vhost {answer['vhost']})"),
            ("reason", answer["reason"]),
            ("error", _error(answer)),
            ("at", answer["frame"] or ""),
            ("deaths", str(answer["deaths"])),
            ("letters", ", ".join(f"{count} {state}" for state, count in sorted(answer["states"].items()))),
            ("lying", str(answer["lying"])),
            *((of, f"{shown(answer[f'{of}_ms'])} ({ago(answer[f'{of}_ms'])})") for of in ("first", "last")),
            ("note", answer["note"] or ""),
            ("by", answer["actor"] or ""),
        )
    )


@app.command()
def ignore(
    group: GroupId,
    *,
    until: Annotated[
        str | None, typer.Option(help="A time, or for how long (2d); without it until it is opened.")
    ] = None,
    note: Note = None,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show it among the ignored ones, until then. Its letters are not touched."""
    until_ms = moment_ms(until, "--until", ahead=True)
    _change(group, {"state": "ignored", "until_ms": until_ms, "note": note}, url, yes=yes, as_json=as_json)


@app.command()
def resolve(group: GroupId, *, note: Note = None, yes: Yes = False, url: Url = None, as_json: Json = False) -> None:
    """Its cause is gone; it opens by itself when another letter dies of it."""
    _change(group, {"state": "resolved", "note": note}, url, yes=yes, as_json=as_json)


@app.command("open")
def reopen(group: GroupId, *, note: Note = None, yes: Yes = False, url: Url = None, as_json: Json = False) -> None:
    """Open it again."""
    _change(group, {"state": "open", "note": note}, url, yes=yes, as_json=as_json)


def _change(group: str, wanted: dict[str, Any], url: str | None, *, yes: bool, as_json: bool) -> None:
    api = Api(url)
    old = api.get(f"/groups/{group}")
    summary = f"{wanted['state']}: {old['failed_queue']}, {old['reason']} {old['error_type']} {old['message']}".strip()
    lying = output.number(old["lying"], "letter lies", "letters lie")
    if not yes and not output.confirmed(f"{summary}; {lying} there. Do it?"):
        output.warn("Nothing was changed.")
        raise typer.Exit(output.FINDINGS)
    body = {name: value for name, value in wanted.items() if value is not None}
    changed = api.ask("PATCH", f"/groups/{group}", body=body)
    if as_json:
        output.as_json(changed)
    else:
        output.say(f"{changed['id']}: {changed['state']}")


def queues(*, url: Url = None, as_json: Json = False) -> None:
    """Show where letters failed, and where they lie: how many the index counts, and the queue holds."""
    api = Api(url)
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
        output.table(_LYING, [_lying(lying) for lying in answer["lying"]])


def unverified(signatures: dict[str, dict[str, int]]) -> list[str]:
    """Return what is to be said of events that no router is known to have written."""
    lines = []
    for vhost, counts in sorted(signatures.items()):
        others = {name: n for name, n in sorted(counts.items()) if name != "ok"}
        if others:
            details = ", ".join(f"{n} {name}" for name, n in others.items())
            events = output.number(sum(others.values()), "event")
            lines.append(f"vhost {vhost!r}: {events} of the journal not verified ({details})")
    return lines


def _lying(lying: dict[str, Any]) -> tuple[str, ...]:
    name = lying["queue"] or place(lying["exchange"], lying["routing_key"])
    depth = "?" if lying["depth"] is None else str(lying["depth"])
    return (name, lying["vhost"], str(lying["indexed"]), depth, ago(lying["checked_ms"]))
