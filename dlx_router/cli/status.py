"""`dlx-router status` and `dlx-router audits`: how a router is, and who did what."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.letters import Json, Url, reach
from dlx_router.cli.output import Id
from dlx_router.cli.timestamps import lasting, second
from dlx_router.core.audit_details import audit_details, task_of
from dlx_router.core.printable import plain

MOST: Final = 500  # audits that the API gives at once
_VHOSTS: Final = (Id("vhost"), "leads", "journal", "index")
_AUDITS: Final = ("when", "who", "action", Id("vhost"), "what")


def status(url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Say whether the router is ready and why not, its policies, the vhosts that it leads, its index; 1: not ready."""
    api = reach(url)
    readiness = api.readiness()
    answer, why = api.look("/status")
    policies = api.look("/policies")[0] if answer is not None else None
    if as_json:
        revision = None if policies is None else policies["revision"]
        output.as_json({"readiness": readiness, "status": answer, "policy_revision": revision})
    else:
        _print(api.address, readiness, answer, why, policies)
    raise typer.Exit(output.OK if readiness["ready"] else output.FINDINGS)


def _print(
    address: str,
    readiness: Mapping[str, Any],
    answer: Mapping[str, Any] | None,
    why: str,
    policies: Mapping[str, Any] | None,
) -> None:
    who = "" if answer is None else f", {answer['router_id']}, dlx-router {answer['version']}"
    output.say(f"{'ready' if readiness['ready'] else 'NOT READY'}: {address}{who}")
    lines = [
        *(("why not", reason) for reason in readiness["reasons"]),
        *(("note", note) for note in readiness["notes"]),
    ]
    if policies is not None:
        count = output.number(len(policies["policies"]), "policy", "policies")
        lines.append(("policies", f"{count}, revision {policies['revision']}"))
    if answer is not None:
        lines += [(of, answer[of].get("trouble") or "") for of in ("index", "tokens")]
    output.facts(lines)
    if answer is None:
        output.warn(f"more is not known: {why}")
        return
    if answer["vhosts"]:
        output.say("")
        indexed = answer["index"].get("vhosts") or {}
        rows = [
            (name, _leads(vhost), vhost["journal"], _index_text(answer["index"], indexed.get(name)))
            for name, vhost in sorted(answer["vhosts"].items())
        ]
        output.table(_VHOSTS, rows)


def _leads(vhost: Mapping[str, Any]) -> str:
    if vhost["leads"]:
        return "yes"
    if (alone_ms := vhost.get("leaderless_ms")) is not None:
        return f"no; no leader for {lasting(alone_ms)}"
    return f"no, {vhost['leader']}" if vhost.get("leader") else "no; leader unknown"


def _index_text(index: Mapping[str, Any], of: Mapping[str, Any] | None) -> str:
    if not index["on"]:
        return "none: set DLX_ROUTER_INDEX_PATH"
    if of is None:
        return "–"
    if of.get("trouble"):
        return str(of["trouble"])
    behind = of.get("behind_ms")
    return f"{of.get('state', '')}{f', {lasting(behind)} behind' if behind else ''}"


def audits(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many.")] = 50,
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Show who did what to letters, groups and tasks, the newest first; of a task's progress each new state."""
    entries = reach(url).get("/audits", limit=limit if as_json else MOST)["audits"]
    if as_json:
        output.as_json(entries)
        return
    shown = turning_points(entries)[:limit]
    if not shown:
        output.say("No audits.")
        return
    output.table(_AUDITS, [_row(entry) for entry in shown])


def turning_points(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without those that only say that a task is still in the state that it was in; the newest first, as given."""
    states: dict[str, tuple[str, str]] = {}
    shown = []
    for entry in reversed(entries):
        task = task_of(entry)
        now = (entry["action"], entry["actor"])
        if task is None or states.get(task["id"]) != now:
            shown.append(entry)
        if task is not None:
            states[task["id"]] = now
    return shown[::-1]


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    doubt = "" if entry.get("signature", "ok") == "ok" else f" [not verified: {entry['signature']}]"
    details = {
        name.removesuffix("_ms"): second(value) if name.endswith("_ms") and isinstance(value, int) else value
        for name, value in audit_details(entry).items()
    }
    what = ", ".join(f"{name} {plain(value)}" for name, value in details.items())
    return second(entry["ts_ms"]), f"{entry['actor']}{doubt}", str(entry["action"]), entry["vhost"], what
