"""A Celery app whose task rejects each message and tells what it saw. `python -m celery_app NUMBER TEXT` sends one."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.exceptions import Reject
from kombu import Exchange, Queue

_QUEUE = os.environ["TESTED_QUEUE"]
_NAMES = ("id", "task", "args", "kwargs", "argsrepr", "origin", "root_id", "correlation_id", "reply_to", "properties")

app = Celery("tested", broker=os.environ["TESTED_URL"])
app.conf.update(
    task_queues=[Queue(_QUEUE, Exchange("shop", "topic"), routing_key=_QUEUE, no_declare=True)],
    task_default_queue=_QUEUE,
    task_default_exchange="shop",
    task_default_exchange_type="topic",
    task_default_routing_key=_QUEUE,
    task_acks_late=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


def take(self: Task, number: int, text: str) -> None:
    """Fails as a task does that wants to be dead-lettered."""
    seen: dict[str, Any] = {name: getattr(self.request, name, None) for name in _NAMES}
    seen |= {"exchange": self.request.delivery_info["exchange"], "got": [number, text]}
    with Path(os.environ["TESTED_FILE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(seen, default=str) + "\n")
    raise Reject("no stock", requeue=False)


task = app.task(bind=True, name="take")(take)

if __name__ == "__main__":
    task.apply_async((int(sys.argv[1]), sys.argv[2]), priority=3)
