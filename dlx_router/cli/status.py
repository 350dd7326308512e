"""`dlx-router status` and `dlx-router audits`: how a router is, and who did what."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.layout import Id, Sentence
from dlx_router.cli.letters import Json, Url, reach
from dlx_router.cli.timestamps import lasting, second
from dlx_router.core.audit_details import audit_details, task_of
from dlx_router.core.printable import plain

MOST: Final = 500  # audits that the API gives at once
_VHOSTS: Final = (Id("vhost"), "leads", "journal", "index")
_AUDITS: Final = ("when", "who", "action", Id("vhost"), Sentence("what"))
_DONE: Final = "webhook.done"


def status(url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Say whether the router is ready and why not, its policies, the vhosts that it leads, its index; 1: not ready."""
    api = reach(url)
    readiness = api.readiness()
    told, why = api.look("/status")
    policies = api.look("/policies")[0] if told is not None else None
    if as_json:
        revision = None if policies is None else policies["revision"]
        output.as_json({"readiness": readiness, "status": told, "policy_revision": revision})
    else:
        _print(api.address, readiness, told, why, policies)
    raise typer.Exit(output.OK if readiness["ready"] else output.FINDINGS)


def _print(
    address: str,
    readiness: Mapping[str, Any],
    told: Mapping[str, Any] | None,
    why: str,
    policies: Mapping[str, Any] | None,
) -> None:
    who = "" if told is None else f", {told['router_id']}, dlx-router {told['version']}"
    output.say(f"{'ready' if readiness['ready'] else 'NOT READY'}: {address}{who}", ids=[address])
    said = [*(("why not", one) for one in readiness["reasons"]), *(("note", one) for one in readiness["notes"])]
    output.facts([*said, *_policies(policies), *(_troubles(told) if told is not None else ())])
    if told is None:
        output.warn(f"more is not known: {why}")
        return
    if told["vhosts"]:
        output.say("")
        indexed = told["index"].get("vhosts") or {}
        rows = [_vhost_row(name, one, told["index"], indexed.get(name)) for name, one in sorted(told["vhosts"].items())]
        output.table(_VHOSTS, rows)


def _policies(found: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    if found is not None:
        count = output.number(len(found["policies"]), "policy", "policies")
        yield "policies", f"{count}, revision {found['revision']}"


def _troubles(told: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "index", told["index"].get("trouble") or ""
    yield "tokens", told["tokens"].get("trouble") or ""


def _vhost_row(
    name: str, one: Mapping[str, Any], index: Mapping[str, Any], indexed: Mapping[str, Any] | None
) -> Sequence[str]:
    return name, _leads(one), one["journal"], _index_text(index, indexed)


def _leads(one: Mapping[str, Any]) -> str:
    if one["leads"]:
        return "yes"
    if (alone_ms := one.get("leaderless_ms")) is not None:
        return f"nobody, for {lasting(alone_ms)}"
    return f"no, {one.get('leader') or 'another router'}"


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
    found = reach(url).get("/audits", limit=limit if as_json else MOST)["audits"]
    if as_json:
        output.as_json(found)
        return
    shown = turning_points(found)[:limit]
    if not shown:
        output.say("No audits.")
        return
    names = [value for one in shown for value in _details(one).values() if isinstance(value, str)]
    rows = [(second(one["ts_ms"]), *_who(one), one["vhost"], _what(one)) for one in shown]
    output.table(_AUDITS, rows, ids=names)


def turning_points(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without those that only say that a task is still in the state that it was in, or that a webhook was taken.

    The newest first, as given.
    """
    states: dict[str, tuple[str, str]] = {}
    shown = []
    for one in reversed(found):
        task = task_of(one)
        now = (one["action"], one["actor"])
        if states.get(task["id"]) != now if task is not None else not _is_delivered(one):
            shown.append(one)
        if task is not None:
            states[task["id"]] = now
    return shown[::-1]


def _is_delivered(one: Mapping[str, Any]) -> bool:
    return bool(one["action"] == _DONE and one["details"].get("result") == "delivered")


def _who(one: Mapping[str, Any]) -> tuple[str, str]:
    doubt = "" if one.get("signature", "ok") == "ok" else f" [not verified: {one['signature']}]"
    return f"{one['actor']}{doubt}", str(one["action"])


def _details(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it was done to; moments as people read them."""
    return {
        name.removesuffix("_ms"): second(value) if name.endswith("_ms") and isinstance(value, int) else value
        for name, value in audit_details(one).items()
    }


def _what(one: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in _details(one).items())
