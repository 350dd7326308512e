"""What tasks say in the journal, and how it is read again. Pure.

Each change of a task is one event of kind `audit` with the whole task in it; each letter that it sends is one of kind
`redriven`, `discarded` or `parked`, with the task's id as `redrive_id`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlx_router.operate.journal.audit import audit
from dlx_router.operate.redrive.task import Task, TaskError, of_document

_MARK: Final = b'"action":"task.'


def line(task: Task, router_id: str) -> bytes:
    """The event of a task's change."""
    return audit(
        router_id,
        task.spec.vhost,
        actor=task.by,
        action=f"task.{task.state}",
        details={"task": task.to_document()},
        ts_ms=task.changed_ms,
    )


def tasks(batch: bytes) -> Iterator[Task]:
    """The tasks of a batch of the journal. Those of another version are left out; nothing here is fatal."""
    if _MARK not in batch:
        return
    for one in batch.splitlines():
        if _MARK in one and (task := _task(one)) is not None:
            yield task


def letters(batch: bytes) -> Iterator[Mapping[str, Any]]:
    """All events of a batch that can be read, but for what a router that only observes would have done."""
    for one in batch.splitlines():
        try:
            event = json.loads(one)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and not event.get("observed"):
            yield event


def _task(text: bytes) -> Task | None:
    try:
        event = json.loads(text)
        return of_document(event["details"]["task"]) if event.get("kind") == "audit" else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TaskError):
        return None
