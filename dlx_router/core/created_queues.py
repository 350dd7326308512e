"""Auto-created dead-letter queues, known by their names alone. Pure.

Whether such a queue stands, and whether the failed one still does, says nothing: a queue whose work queue was deleted
holds dead letters as before.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from dlx_router.core.names import MAX_NAME_BYTES

TRANSIENT: Final = "transient"  # as if a queue of this name had failed: for exclusive, generated and vanished queues
_CUT: Final = re.compile(r"-[0-9a-f]{16}\Z")  # what ends the name of a dead-letter queue that would have been too long
_NEAR: Final = MAX_NAME_BYTES - 8  # a character that is cut in the middle is left out

Affixes = tuple[str, str]  # what stands before and behind the failed queue's name


def is_created(
    queue: str,
    prefixes: Iterable[str],
    suffixes: Iterable[str],
    affixes_of: Callable[[str], Iterable[Affixes]],
) -> bool:
    """Whether dead letters of some queue have this one created. `affixes_of`: what policies write about that queue."""
    before = [prefix for prefix in prefixes if queue.startswith(prefix)]
    if not before:
        return False
    if len(queue.encode(errors="surrogateescape")) >= _NEAR and _CUT.search(queue):
        return True
    behind = [suffix for suffix in suffixes if queue.endswith(suffix)]
    return any(_is_created(queue, (prefix, suffix), affixes_of) for prefix in before for suffix in behind)


def _is_created(queue: str, affixes: Affixes, affixes_of: Callable[[str], Iterable[Affixes]]) -> bool:
    prefix, suffix = affixes
    failed = queue[len(prefix) : len(queue) - len(suffix)]
    if not failed or failed == queue:
        return False
    return failed == TRANSIENT or affixes in affixes_of(failed)
