"""Inboxes of a time of more shards: nobody is told to delete one that may hold a letter, or get one."""

from collections.abc import Iterator
from typing import Final

from dlx_router.broker.administration import Snapshot, Standing
from dlx_router.core.names import Names
from dlx_router.provisioning.queue_definition import EXCHANGE
from dlx_router.provisioning.uncounted import DEATHS, LETTERS

_SHOWN: Final = 5


def lines(snapshot: Snapshot, names: Names) -> Iterator[str]:
    """What is with each that still stands."""
    for queue in snapshot.queues:
        if queue.name in names.unnamed_inboxes:
            inbox = f"queue {queue.name} is an inbox that DLX_ROUTER_INBOX_SHARDS={names.shards} does not name"
            yield inbox + (_letters(queue) or _coming(queue.name, snapshot))


def _letters(inbox: Standing) -> str:
    """What lies there; "": surely nothing."""
    if inbox.messages is None:
        return f": what lies in it is not known, so it may not be deleted: {LETTERS}"
    if not inbox.messages:
        return ""
    if inbox.consumers:
        return f": a router takes the {inbox.messages} letters in it"
    nobody = "" if inbox.consumers is None else ", and nobody takes them"
    start = "start a router, or see what a running one says of it (/readyz)"
    return f": {inbox.messages} letters lie in it{nobody}; {start}"


def _coming(inbox: str, snapshot: Snapshot) -> str:
    """What may come to an empty one."""
    leads = [source.name for source in snapshot.queues if source.arguments.get(f"x-{EXCHANGE}") == inbox]
    leads += [f"policy {rule.name}" for rule in snapshot.policies if rule.definition.get(EXCHANGE) == inbox]
    if leads:
        return f", and dead letters still come there: {', '.join(leads[:_SHOWN])}"
    if any(queue.pending for queue in snapshot.queues):
        return ", and dead letters may be on their way there"
    if unknown := [queue.name for queue in snapshot.queues if queue.pending is None]:
        shown = ", ".join(unknown[:_SHOWN])
        return f": it is empty, but whether dead letters of {shown} are on their way there is not known: {DEATHS}"
    return "; it is empty: delete the queue and the exchange of that name"
