"""Redrive: what is meant → counted by a dry run → its number typed → at work, with a pace, a canary and a stop."""

from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command, number, task_command
from dlx_router.console.forms import Form, FormError
from dlx_router.console.pages.overview import AT_WORK
from dlx_router.console.rendering import quoted
from dlx_router.console.router_api import ApiError
from dlx_router.console.sorting import Values, arranged, order_of

COLUMNS: Final = [
    "id", "vhost", "queue", "kind", "dry_run", "state", "sent", "meant", "came_back", "left", "unreadable",
    "not_letters", "total", "by", "created_ms", "changed_ms", "why",
]  # fmt: skip
GROUPS: Final = ["group", "failed_queue", "reason", "letters"]
KINDS: Final = {"redrive": "send back", "park": "put into parking", "discard": "delete for good"}
VERBS: Final = ("pause", "resume", "cancel")
RATE: Final = 50.0  # letters a second, where a dry run says none
WATCH_S: Final = 60.0
VALUES: Final[Values] = {
    "queue": lambda row: row["spec"]["queue"],
    "state": lambda row: row["state"],
    "sent": lambda row: row["counts"]["sent"],
    "stays": lambda row: row["counts"]["left"] + row["counts"]["unreadable"] + row["counts"]["not_letters"],
    "changed": lambda row: row["changed_ms"],
}
_OBJECTS: Final = frozenset({403, 404, 409, 503})


async def tasks(asked: Asked) -> Response:
    """All tasks of a vhost, newest first."""
    vhosts = await asked.vhosts()
    vhost = asked.query("vhost") or next(iter(vhosts), "/")
    cursor = asked.query("cursor")
    answer = await asked.get("/tasks", vhost=vhost, queue=asked.query("queue"), cursor=cursor)
    entries, following = answer["tasks"], answer["next"]
    order = order_of(asked.query("sort"), VALUES, "")
    entries = arranged(entries, VALUES, order) if order.name else entries
    listed = asked.listing("tasks", COLUMNS, [_row(entry) for entry in entries])
    command_line = command("redrive", "list", vhost=vhost if vhost != "/" else None)
    return listed or asked.page(
        "tasks.html",
        tasks=entries,
        vhost=vhost,
        vhosts=vhosts,
        command=command_line,
        order=order,
        older=None if following is None else asked.again(cursor=following),
        is_first=not cursor,
    )


async def redrive(asked: Asked) -> Response:
    """The form: which letters of which queue."""
    wanted = {name: asked.query(name) for name in ("vhost", "queue", "group", "filter", "ids", "kind", "limit")}
    vhosts = await asked.vhosts()
    wanted["vhost"] = wanted["vhost"] or next(iter(vhosts), "/")
    preview, reason = await _preview(asked, wanted["vhost"], wanted["queue"])
    places = (await asked.get("/queues"))["lying"]
    return asked.page(
        "redrive.html", wanted=wanted, vhosts=vhosts, preview=preview, said=reason, kinds=KINDS,
        places=[place for place in places if place["queue"]],
        command=task_command({**wanted, "queue": wanted["queue"] or "QUEUE", "ids": wanted["ids"].split(),
                              "kind": wanted["kind"] or "redrive", "dry_run": True}),
    )  # fmt: skip


async def count_letters(asked: Asked) -> Response:
    """A dry run: nothing moves, and its page says what would."""
    spec = {**_meant(asked.form), "dry_run": True, "rate": 0}
    task = await asked.change("POST", "/tasks", spec)
    return asked.go(asked.path("/tasks", task["id"], vhost=task["spec"]["vhost"]))


def _meant(form: Form) -> dict[str, Any]:
    """Which letters. What is empty narrows nothing: a person sees the field, and the count comes before the deed."""
    kind = form.text("kind") or "redrive"
    if kind not in KINDS:
        raise FormError(f"kind: {', '.join(KINDS)}")
    spec: dict[str, Any] = {"vhost": form.raw("vhost"), "queue": form.raw("queue"), "kind": kind}
    spec |= {name: form.text(name) for name in ("group", "filter") if form.text(name)}
    if ids := form.words("ids"):
        spec["ids"] = ids
    if limit := form.whole("limit"):
        spec["limit"] = limit
    if to := form.raw("to_queue"):
        spec["to"] = {"exchange": "", "routing_key": to}
    if form.ticked("known"):
        spec["not_a_dead_letter_queue"] = True
    return spec


async def task(asked: Asked) -> Response:
    """One task as it stands; a dry run that is done offers the deed."""
    status = await _status(asked)
    spec, counts = status["spec"], status["counts"]
    if (listed := asked.listing("groups-of-task", GROUPS, status["groups"])) is not None:
        return listed
    counted = spec["dry_run"] and status["state"] == "done"
    preview, reason = await _preview(asked, spec["vhost"], spec["queue"]) if counted else (None, "")
    return asked.page(
        "task.html",
        task=status,
        at_work=status["state"] in AT_WORK,
        stays=counts["left"] + counts["unreadable"] + counts["not_letters"],
        preview=preview,
        said=reason,
        kinds=KINDS,
        meant=_meant_letters(status),
        whole=_whole(status),
        came_back=status.get("came_back"),
        needs_number=_needs_number(status),
        fields=_fields(spec),
        command=task_command(spec),
        start_command=task_command(_as_rendered(status, preview)),
        verbs={verb: command("redrive", verb, operand=status["id"]) for verb in VERBS},
    )


def _fields(spec: dict[str, Any]) -> dict[str, str]:
    """What the form has in its fields at first: what the dry run says."""
    canary = spec["canary"]
    fields = {"rate": number(spec["rate"] or RATE), "canary": "", "watch": number(WATCH_S), "max_dead": "0"}
    if canary:
        fields |= {"canary": str(canary["first"]), "watch": number(canary["watch_s"])}
        fields["max_dead"] = number(canary["max_dead_percent"])
    return fields


def _as_rendered(status: dict[str, Any], preview: dict[str, Any] | None) -> dict[str, Any]:
    """What the form starts where nobody changes a field of it; an objection has to be agreed to."""
    spec = status["spec"]
    known = spec["not_a_dead_letter_queue"] or bool(preview and preview["objection"])
    changed = {"dry_run": False, "limit": _meant_letters(status), "rate": spec["rate"] or RATE}
    return {**spec, **changed, "not_a_dead_letter_queue": known}


def _meant_letters(status: dict[str, Any]) -> int:
    """So many would go: a dry run may have looked at some more than its limit."""
    sent, limit = int(status["counts"]["sent"]), int(status["spec"]["limit"])
    return min(sent, limit) if limit else sent


def _whole(status: dict[str, Any]) -> int:
    """So many letters it means in all; a router of an older version does not say it."""
    meant = status.get("meant")
    return int(meant["letters"] if meant else status["spec"]["limit"] or status["total"])


def _needs_number(status: dict[str, Any]) -> bool:
    """Whether the number of letters has to be typed: of one letter it says nothing, but what is deleted is gone."""
    return _meant_letters(status) != 1 or status["spec"]["kind"] == "discard"


async def start(asked: Asked) -> Response:
    """Do what a dry run counted, and no letter more: those that died since then stay."""
    counted, form = await _status(asked), asked.form
    spec, meant = counted["spec"], _meant_letters(counted)
    if not spec["dry_run"] or counted["state"] != "done":
        raise FormError("that is no dry run that is done; count the letters first", 409)
    if spec["kind"] not in KINDS:
        raise FormError("an export goes to who reads it: start it by the API, or by letters export", 409)
    if not meant:
        raise FormError("no letter was counted, and a task of none would have no limit; count them again", 409)
    if _needs_number(counted) and form.whole("letters", -1) != meant:
        raise FormError(f"letters: type {meant}, the number that was counted; nothing was started", 422)
    wanted: dict[str, Any] = {name: spec[name] for name in ("vhost", "queue", "kind", "cutoff_ms")}
    wanted |= {name: spec[name] for name in ("ids", "group", "filter", "to") if spec[name]}
    wanted |= {"rate": form.number("rate", RATE), "not_a_dead_letter_queue": form.ticked("known")}
    wanted["limit"] = meant
    if first := form.whole("canary"):
        dead = form.number("max_dead")
        wanted["canary"] = {"first": first, "watch_s": form.number("watch", WATCH_S), "max_dead_percent": dead}
    started = await asked.change("POST", "/tasks", wanted)
    return asked.go(asked.path("/tasks", started["id"], vhost=spec["vhost"]))


async def change_task(asked: Asked) -> Response:
    """Pause, resume or cancel."""
    verb, name = asked.request.path_params["verb"], asked.request.path_params["task_id"]
    if verb not in VERBS:
        raise FormError("pause, resume or cancel", 404)
    vhost = asked.query("vhost", "/")
    await asked.change("POST", f"/tasks/{quoted(name[:255])}/{verb}", vhost=vhost)
    return asked.go(asked.path("/tasks", name, vhost=vhost))


async def _status(asked: Asked) -> dict[str, Any]:
    name = asked.request.path_params["task_id"]
    return await asked.get(f"/tasks/{quoted(name[:255])}", vhost=asked.query("vhost", "/"))


async def _preview(asked: Asked, vhost: str, queue: str) -> tuple[dict[str, Any] | None, str]:
    """What lies in the queue, or why nobody says."""
    if not queue or not asked.may("operator"):
        return None, ""
    try:
        return await asked.get("/tasks/preview", vhost=vhost, queue=queue), ""
    except ApiError as error:
        if error.status not in _OBJECTS:
            raise
        return None, error.error


def _row(status: dict[str, Any]) -> dict[str, Any]:
    spec = {name: status["spec"][name] for name in ("vhost", "queue", "kind", "dry_run")}
    return {
        **spec,
        **status["counts"],
        **{name: status[name] for name in COLUMNS if name in status},
        "meant": _whole(status),
    }
