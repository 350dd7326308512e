"""A vhost's queues as the management API lists them, page by page: none that stands meanwhile is left out.

A page is cut out of all queues, by number, when it is asked for. So a queue that is deleted moves those behind it by
one place, and the first of the next page is in no page. No number shows that: where another was made meanwhile there
are as many as before.
Source: the HTTP API page of the management plugin (/api/index.html), tried on RabbitMQ 3.10, 4.0 and 4.3.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from dlx_router.broker.management_words import ManagementError, NotThereError, part

PAGE: Final = 500
MOST_MISSED: Final = 500  # each is a question of its own
_NO_SUCH_PAGE: Final = "out of range"  # queues were deleted, and there are fewer pages now
Get = Callable[[str], Awaitable[Any]]


async def listed(get: Get, vhost: str, pattern: str, columns: str) -> AsyncIterator[Mapping[str, Any]]:
    """Each queue whose name the expression finds, once; `columns` have the name. ManagementError where that fails."""
    seen: set[str] = set()
    page, pages = 0, 1
    while page < pages:
        page += 1
        pages, items = await _page(get, vhost, page, f"name={quote(pattern, safe='')}&columns={columns}")
        for queue in items:
            if queue["name"] not in seen:  # one that was made moves those behind it to the next page
                seen.add(queue["name"])
                yield queue
    if page > 1:
        for name in await _missed(get, vhost, pattern, seen):
            try:
                queue = await get(f"queues/{part(vhost)}/{part(name)}?columns={columns}")
            except NotThereError:
                continue  # deleted since
            yield queue


async def _page(get: Get, vhost: str, page: int, query: str) -> tuple[int, list[Mapping[str, Any]]]:
    """How many pages there are, and the queues of this one."""
    try:
        answer = await get(f"queues/{part(vhost)}?page={page}&page_size={PAGE}&use_regex=true&{query}")
        return answer["page_count"], answer["items"]
    except (KeyError, TypeError):
        raise ManagementError("the answer is no list of queues; look at MANAGEMENT_URL") from None
    except ManagementError as error:
        if page == 1 or _NO_SUCH_PAGE not in str(error).lower():
            raise
        return page, []


async def _missed(get: Get, vhost: str, pattern: str, seen: set[str]) -> list[str]:
    """The names that no page had, of a list that comes in one answer: names need no statistics, so it costs little."""
    rows = await get(f"queues/{part(vhost)}?columns=name")
    fits = re.compile(pattern).search
    missed = [row["name"] for row in rows if row["name"] not in seen and fits(row["name"])]
    if len(missed) > MOST_MISSED:
        raise ManagementError(
            f"vhost {vhost!r}: {len(missed)} queues came or moved while they were listed, more than are asked for one "
            f"by one; run it again when fewer come and go"
        )
    return missed
