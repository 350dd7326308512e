"""What an audit is about, short enough for a line: the same in a terminal and on a page."""

from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core import status_pages
from dlx_router.core.saved_searches import ACTIONS, read

_ONE_TASK: Final = "task."


def task_of(audit: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The task that an audit tells of; None where it tells of none."""
    task = audit["details"].get("task") if str(audit["action"]).startswith(_ONE_TASK) else None
    is_whole = isinstance(task, dict) and isinstance(task.get("spec"), dict) and isinstance(task.get("id"), str)
    return task if is_whole else None


def audit_details(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values, without what is empty; of a task, a message and a search what tells it from others."""
    task, message, search = task_of(audit), audit["details"].get("message"), _search(audit)
    if isinstance(message, dict):
        return {"to": audit["details"].get("to"), **{name: message.get(name) for name in ("kind", "count", "id")}}
    if (short := search or _page(audit)) is not None:
        return short
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


def _search(audit: Mapping[str, Any]) -> dict[str, Any] | None:
    """A saved search by its name, page and filter; all of them by their number. None where it tells of none."""
    if audit["action"] not in ACTIONS:
        return None
    search, searches = audit["details"].get("search"), audit["details"].get("searches")
    if isinstance(searches, list):
        return {"searches": len(searches)}
    saved = read(search)
    return None if saved is None else {"search": saved.name, "page": saved.page, **saved.filter}


def _page(audit: Mapping[str, Any]) -> dict[str, Any] | None:
    """A status page by its group and queue; all of them by their number. None where it tells of none."""
    if audit["action"] not in status_pages.ACTIONS:
        return None
    pages = audit["details"].get("pages")
    if isinstance(pages, list):
        return {"pages": len(pages)}
    page = status_pages.read(audit["details"].get("page"))
    if page is None:
        return None
    return {
        "group": page.group,
        "queue": page.queue,
        "error": "shown" if page.shows_error else "not shown",
        "note": page.note,
    }
