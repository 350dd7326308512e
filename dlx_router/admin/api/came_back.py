"""Tasks as the API shows them: with how many letters are meant, and how many of those that were sent came back."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from fastapi import HTTPException

from dlx_router.admin.api.asking import asked
from dlx_router.admin.api.context import Context
from dlx_router.index.reader import Reader
from dlx_router.redrive.outlook import outlook
from dlx_router.redrive.task import Kind, Task

_KEPT_S: Final = 1.0
_SHARE: Final = 20  # the question takes a twentieth of the time at most, however often somebody asks
_MOST: Final = 500  # tasks in one question


async def documents(
    given: Context, tasks: Sequence[Task], document: Callable[[Task], dict[str, Any]] = Task.to_document
) -> list[dict[str, Any]]:
    """Each task as JSON has it, or as `document` makes it."""
    counted = await _counted(given, [task for task in tasks if _goes_back(task)][:_MOST])
    return [
        {**document(task), "meant": outlook(task)._asdict(), "came_back": counted.get(task.id) if counted else None}
        for task in tasks
    ]


def _goes_back(task: Task) -> bool:
    return task.spec.kind is Kind.REDRIVE and not task.spec.dry_run and task.counts.sent > 0


async def _counted(given: Context, tasks: Sequence[Task]) -> dict[str, int]:
    """By task; empty where no index can be asked: then nobody knows."""
    if given.index is None or not tasks:
        return {}
    kept: dict[frozenset[str], tuple[float, dict[str, int]]] = given.extras.setdefault("came_back", {})
    wanted = frozenset(task.id for task in tasks)
    until, known = kept.get(wanted, (0.0, {}))
    began = time.monotonic()
    if began < until:
        return known
    try:
        known = await _asked(given, tasks)
    except HTTPException:  # the index is away, or the question too long: the task is shown without
        known = {}
    now = time.monotonic()
    for key in [key for key, (until, _) in kept.items() if until < now]:
        del kept[key]
    kept[wanted] = (now + max(_KEPT_S, (now - began) * _SHARE), known)
    return known


async def _asked(given: Context, tasks: Sequence[Task]) -> dict[str, int]:
    counts = dict.fromkeys((task.id for task in tasks), 0)
    for elsewhere in (False, True):
        ids = [task.id for task in tasks if (task.spec.to is not None) is elsewhere]
        if ids:
            counts |= await asked(given, partial(Reader.came_back, tasks=ids, elsewhere=elsewhere))
    return counts
