"""What an audit is about, short enough for a line: the same in a terminal and on a page."""

from collections.abc import Mapping
from typing import Any, Final

_ONE_TASK: Final = "task."


def task_of(audit: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The task that an audit tells of; None where it tells of none."""
    task = audit["details"].get("task") if str(audit["action"]).startswith(_ONE_TASK) else None
    is_whole = isinstance(task, dict) and isinstance(task.get("spec"), dict) and isinstance(task.get("id"), str)
    return task if is_whole else None


def audit_details(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values, without what is empty; of a task and a message what tells it from others."""
    task, message = task_of(audit), audit["details"].get("message")
    if isinstance(message, dict):
        return {"to": audit["details"].get("to"), **{name: message.get(name) for name in ("kind", "count", "id")}}
    if task is None:
        return {name: value for name, value in audit["details"].items() if value not in (None, "")}
    spec, counts = task["spec"], task.get("counts")
    kind = f"{spec.get('kind')}{' (dry run)' if spec.get('dry_run') else ''}"
    sent = counts.get("sent", 0) if isinstance(counts, dict) else 0
    return {
        "task": task["id"],
        "kind": kind,
        "queue": spec.get("queue"),
        "would go" if spec.get("dry_run") else "sent": sent,
    }
