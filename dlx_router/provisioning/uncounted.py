"""What is said, and taken for granted, where the broker tells no count: that is never 0 of itself."""

from dataclasses import replace
from typing import Final

from dlx_router.broker.administration import Snapshot

WHY: Final = (
    "the broker does not tell it (its statistics are off, it has not counted yet, a node starts or has no majority)"
)
LETTERS: Final = f"{WHY}; `rabbitmqctl list_queues -p VHOST name state messages` asks the queues themselves"
DEATHS: Final = f"{WHY}; docs/provisioning.md says how to ask the queues themselves"


def none_pending(snapshot: Snapshot) -> Snapshot:
    """The same; deaths that nobody counts are none, as somebody says who has looked; not of a queue that is down."""
    queues = (queue if queue.is_down else replace(queue, pending=queue.pending or 0) for queue in snapshot.queues)
    return replace(snapshot, queues=tuple(queues))
