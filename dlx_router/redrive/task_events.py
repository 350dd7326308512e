"""What tasks say in the journal, and how it is read again. Pure.

Each change of a task is one event of kind `audit` with the whole task in it; each letter that it sends is one of kind
`redriven`, `discarded` or `parked`, with the task's id as `redrive_id`.

A task's event is signed: whoever may publish by the default exchange can write into the journal, and the next leader
does what the tasks there say.
"""

import json
from collections.abc import Iterator, Mapping
from hmac import compare_digest
from typing import Any, Final

from dlx_router.core.record import mac
from dlx_router.journal.audit import audit
from dlx_router.journal.strict_json import decoded
from dlx_router.redrive.task import Task, TaskError, of_document

MARK: Final = b'"action":"task.'  # in every message that tells of a task
_KEYS: Final = ("id", "failed_queue", "kind", "redrive_id")  # what letters are told apart by


def line(task: Task, router_id: str, key: bytes) -> bytes:
    """The event of a task's change, signed."""
    document = task.to_document()
    return audit(
        router_id,
        task.spec.vhost,
        actor=task.by,
        action=f"task.{task.state}",
        details={"task": document, "mac": _mac(document, key)},
        ts_ms=task.changed_ms,
    )


def tasks(batch: bytes, key: bytes) -> Iterator[Task]:
    """The tasks of a batch of the journal that this key signed. Others are left out; nothing is fatal."""
    if MARK not in batch:
        return
    for text in batch.splitlines():
        if MARK in text and (task := _task(text, key)) is not None:
            yield task


def letters(batch: bytes) -> Iterator[Mapping[str, Any]]:
    """All events of a batch that can be read, but for what a router that only observes would have done."""
    for text in batch.splitlines():
        try:
            event = decoded(text.decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and not event.get("observed") and all(_is_text(event.get(name)) for name in _KEYS):
            yield event


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _mac(document: Mapping[str, Any], key: bytes) -> str:
    """Over the same bytes before and after JSON, whatever the order of members."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return mac(text.encode(), key)


def _task(text: bytes, key: bytes) -> Task | None:
    try:
        event = decoded(text.decode())
        document, signed = event["details"]["task"], event["details"]["mac"]
        is_ours = event.get("kind") == "audit" and compare_digest(signed, _mac(document, key))
        return of_document(document) if is_ours else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TaskError):
        return None
