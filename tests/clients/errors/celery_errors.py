"""A Celery app: `celery --app celery_errors worker`, and `python celery_errors.py TEXT…` sends tasks.

From the environment: TESTED_URL, TESTED_QUEUE, TESTED_BLOCK; TESTED_EXCHANGE where it is not the default exchange.
"""

import os
import sys

from celery import Celery, Task
from celery.exceptions import Reject
from failing import handle, set_up, told
from kombu import Exchange, Queue

_QUEUE = os.environ["TESTED_QUEUE"]
app = Celery("tested", broker=os.environ["TESTED_URL"])
set_up(os.environ["TESTED_BLOCK"], _QUEUE, app=app)
_EXCHANGE = Exchange(os.environ.get("TESTED_EXCHANGE", ""), "topic" if "TESTED_EXCHANGE" in os.environ else "direct")
app.conf.update(
    task_queues=[Queue(_QUEUE, _EXCHANGE, routing_key=_QUEUE, no_declare=True)],
    task_default_queue=_QUEUE,
    task_default_exchange=_EXCHANGE.name,
    task_default_exchange_type=_EXCHANGE.type,
    task_default_routing_key=_QUEUE,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


def take(self: Task, text: str) -> None:
    """Fails as a task does."""
    told("took", text, self.request.retries)
    if text in {"again", "tries"}:
        if text == "again" and self.request.retries:
            return
        try:
            handle("odd")
        except KeyError as error:
            raise self.retry(exc=error, countdown=0) from error
    if text == "no":
        raise Reject("not now", requeue=False)
    if text == "because":
        try:
            handle("odd")
        except KeyError as error:
            raise Reject(error, requeue=False) from error
    handle(text)


task = app.task(bind=True, name="take", max_retries=1)(take)

if __name__ == "__main__":
    for word in sys.argv[1:]:
        task.apply_async((word,))
