"""`dlx-router status` and `dlx-router audits`: how a router is, and who did what."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.api import Api, ApiError
from dlx_router.cli.options import Json, Url
from dlx_router.cli.output import Id
from dlx_router.cli.timestamps import lasting, shown
from dlx_router.core.audit_details import audit_details, task_of
from dlx_router.core.printable import plain

MOST: Final = 500  # audits that the API gives at once
_VHOSTS: Final = (Id("vhost"), "leads", "journal", "index")
_AUDITS: Final = ("when", "who", "action", Id("vhost"), "what")


def status(*, url: Url = None, as_json: Json = False) -> None:
    """Say whether the router is ready and why not, its policies, the vhosts that it leads, its index; 1: not ready."""
    api, answer, policies, why = Api(url), None, None, ""
    readiness = api.readiness()
    try:
        answer = api.ask("GET", "/status", patience_s=0)
        policies = api.ask("GET", "/policies", patience_s=0)
    except ApiError as error:
        why = str(error)
    if as_json:
        revision = None if policies is None else policies["revision"]
        output.as_json({"readiness": readiness, "status": answer, "policy_revision": revision})
    else:
        who = "" if answer is None else f", {answer['router_id']}, dlx-router {answer['version']}"
        output.say(f"{'ready' if readiness['ready'] else 'NOT READY'}: {api.address}{who}")
        output.facts(_facts(readiness, answer, policies))
        if why:
            output.warn(f"more is not known: {why}")
        if answer is not None and answer["vhosts"]:
            output.say("")
            output.table(_VHOSTS, [_row(name, answer) for name in sorted(answer["vhosts"])])
    raise typer.Exit(output.OK if readiness["ready"] else output.FINDINGS)


def _facts(
    readiness: Mapping[str, Any], answer: Mapping[str, Any] | None, policies: Mapping[str, Any] | None
) -> Iterable[tuple[str, str]]:
    yield from (("why not", reason) for reason in readiness["reasons"])
    yield from (("note", note) for note in readiness["notes"])
    if policies is not None:
        yield (
            "policies",
            f"{output.number(len(policies['policies']), 'policy', 'policies')}, revision {policies['revision']}",
        )
    if answer is not None:
        yield from ((of, answer[of].get("trouble") or "") for of in ("index", "tokens"))


def _row(name: str, answer: Mapping[str, Any]) -> tuple[str, ...]:
    vhost, index = answer["vhosts"][name], answer["index"]
    if vhost["leads"]:
        leads = "yes"
    elif (alone_ms := vhost.get("leaderless_ms")) is not None:
        leads = f"no; no leader for {lasting(alone_ms)}"
    else:
        leads = f"no, {vhost['leader']}" if vhost.get("leader") else "no; leader unknown"
    indexed = (index.get("vhosts") or {}).get(name)
    if not index["on"]:
        text = "none: set DLX_ROUTER_INDEX_PATH"
    elif indexed is None:
        text = "–"
    else:
        behind = f", {lasting(indexed['behind_ms'])} behind" if indexed.get("behind_ms") else ""
        text = indexed.get("trouble") or f"{indexed.get('state', '')}{behind}"
    return name, leads, vhost["journal"], text


def audits(
    *,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many.")] = 50,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show who did what to letters, groups and tasks, the newest first; of a task's progress each new state."""
    entries = Api(url).get("/audits", limit=limit if as_json else MOST)["audits"]
    if as_json:
        output.as_json(entries)
    elif turns := turning_points(entries)[:limit]:
        output.table(_AUDITS, [_audit(entry) for entry in turns])
    else:
        output.say("No audits.")


def turning_points(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the entries, the newest first as given, without those that say again in which state a task is."""
    states: dict[str, tuple[str, str]] = {}
    turns = []
    for entry in reversed(entries):
        task, now = task_of(entry), (entry["action"], entry["actor"])
        if task is None or states.get(task["id"]) != now:
            turns.append(entry)
        if task is not None:
            states[task["id"]] = now
    return turns[::-1]


def _audit(entry: Mapping[str, Any]) -> tuple[str, ...]:
    doubt = "" if entry.get("signature", "ok") == "ok" else f" [not verified: {entry['signature']}]"
    details = {
        name.removesuffix("_ms"): shown(value, "seconds")[:19]
        if name.endswith("_ms") and isinstance(value, int)
        else value
        for name, value in audit_details(entry).items()
    }
    what = ", ".join(f"{name} {plain(value)}" for name, value in details.items())
    return shown(entry["ts_ms"], "seconds")[:19], f"{entry['actor']}{doubt}", entry["action"], entry["vhost"], what
