"""A task in words: what was asked for, how far it is, for a table, for a progress bar and by itself."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dlx_router.cli import output
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, lasting, shown

_IDS: Final = 3
_ACTIVE: Final = frozenset({"running", "watching", "paused"})
COLUMNS: Final = (
    Id("task"), "state", Id("queue"), "kind", Number("sent"), Number("stays"), Number("came back"), Number("meant"),
    "started", "by", "rate", "which", "why",
)  # fmt: skip
_GROUPS: Final = (Id("group"), Id("failed queue"), "reason", Number("letters"))


def which(spec: Mapping[str, Any]) -> str:
    """What narrows a task; "" where all letters are meant."""
    ids = spec.get("ids") or ()
    more = (spec.get("id_count") or len(ids)) - _IDS  # a list has the first ids only
    filters = {
        "filter": spec.get("filter"),
        "group": spec.get("group"),
        "id": f"{', '.join(ids[:_IDS])}{f' and {more} more' if more > 0 else ''}",
        "limit": spec.get("limit"),
    }
    return ", ".join(f"{name} {value}" for name, value in filters.items() if value)


def target(to: Mapping[str, Any]) -> str:
    """Where letters go instead of their failed queue."""
    return f"exchange {to['exchange']} with key {to['routing_key']}" if to["exchange"] else f"queue {to['routing_key']}"


def canary_text(canary: Mapping[str, Any]) -> str:
    """How many go first, and when the rest follows."""
    most = f"{canary['max_dead_percent']:g} %"
    return f"{canary['first']} first, watched for {canary['watch_s']:g} s, at most {most} dead"


def rate_text(spec: Mapping[str, Any]) -> str:
    """How fast."""
    rate = f"{spec['rate']:g} a second" if spec.get("rate") else "as fast as it goes"
    ramp = ", ".join(f"{step:g}" for step in spec.get("ramp") or ())
    return f"{rate}, first {ramp}" if ramp else rate


def meant(task: Mapping[str, Any]) -> tuple[int, bool]:
    """How many letters are meant, and whether that is known for sure; of an older router all that lay there."""
    estimate = task.get("meant")
    if estimate is None:
        return int(task["spec"]["limit"] or task["total"]), False
    return int(estimate["letters"]), bool(estimate["is_exact"])


def meant_text(task: Mapping[str, Any]) -> str:
    """The number of letters that are meant; ~ where it is estimated."""
    letters, is_exact = meant(task)
    return f"{letters}" if is_exact else f"~{letters}"


def progress(task: Mapping[str, Any]) -> str:
    """How far it is."""
    back = f", {task['came_back']} came back" if task.get("came_back") else ""
    return f"{task['counts']['sent']} of {meant_text(task)} sent{back}"


def _stays(task: Any) -> int:  # noqa: ANN401 - JSON
    counts = task["counts"]
    return int(counts["left"] + counts["unreadable"] + counts["not_letters"])


def _kind(spec: Mapping[str, Any]) -> str:
    return f"{spec['kind']} (dry run)" if spec["dry_run"] else str(spec["kind"])


def _back(task: Mapping[str, Any]) -> str:
    """How many came back; "–" where nobody can say, or none could."""
    return "–" if task.get("came_back") is None else str(task["came_back"])


def row(task: Any) -> Sequence[str]:  # noqa: ANN401 - JSON
    """A task as a line of a table: see COLUMNS."""
    spec = task["spec"]
    numbers = (str(task["counts"]["sent"]), str(_stays(task)), _back(task), meant_text(task))
    rate = "" if spec["dry_run"] else f"{spec['rate']:g}/s" if spec["rate"] else "unlimited"
    started = (ago(task["created_ms"]), task["by"], rate, which(spec) or "all")
    return (task["id"], task["state"], spec["queue"], _kind(spec), *numbers, *started, task["why"])


def print_task(task: Any, *, as_json: bool) -> None:  # noqa: ANN401 - JSON
    """One task, as facts or as JSON."""
    if as_json:
        output.as_json(task)
        return
    spec, counts = task["spec"], task["counts"]
    output.say(f"Task {task['id']} is {task['state']}: {_kind(spec)} of queue {spec['queue']}")
    went = "would go" if spec["dry_run"] else {"discard": "deleted", "park": "parked"}.get(spec["kind"], "sent")
    passed = ", passed" if task["canary_passed"] else ""
    odd = {"no letters": counts["not_letters"], "unreadable": counts["unreadable"]}
    odd_text = ", ".join(f"{count} of them {what}" for what, count in odd.items() if count)
    facts = (
        ("started", f"{shown(task['created_ms'])} ({ago(task['created_ms'])}) by {task['by']}"),
        ("changed", f"{shown(task['changed_ms'])} ({ago(task['changed_ms'])})"),
        ("which", which(spec) or "all letters that were dead before it started"),
        ("to", target(spec["to"]) if spec["to"] else ""),
        ("rate", "" if spec["dry_run"] else rate_text(spec)),
        ("canary", f"{canary_text(spec['canary'])}{passed}" if spec["canary"] and not spec["dry_run"] else ""),
        ("changes", _edited(spec.get("edit"))),
        ("meant", f"{meant_text(task)} of {output.number(task['total'], 'message')} in the queue at first"),
        (went, str(counts["sent"])),
        ("to go", _to_go(task)),
        ("stays", f"{_stays(task)}{f' ({odd_text})' if odd_text else ''}"),
        ("came back", "" if task.get("came_back") is None else str(task["came_back"])),
        ("why", task["why"]),
    )
    output.facts(facts)
    if task["groups"]:
        output.say("")
        rows = [
            (group["group"], group["failed_queue"], group["reason"], str(group["letters"])) for group in task["groups"]
        ]
        output.table(_GROUPS, rows)


def _to_go(task: Mapping[str, Any]) -> str:
    """Of a task that is not over: how many letters, and how long they take at its rate."""
    if task["state"] not in _ACTIVE or task["spec"]["dry_run"]:
        return ""
    letters, is_exact = meant(task)
    left, rate = max(letters - task["counts"]["sent"], 0), task["spec"]["rate"]
    lasts = f", about {lasting(math.ceil(left / rate) * 1000)} at its rate" if rate and left else ""
    return f"{left if is_exact else f'~{left}'}{lasts}"


def _edited(edit: Mapping[str, Any] | None) -> str:
    if edit is None:
        return ""
    body = [] if edit["body_bytes"] is None else [f"a body of {output.number(edit['body_bytes'], 'byte')}"]
    return ", ".join([*body, *(f"header {name}" for name in edit["headers"])])
