"""`python dramatiq_errors.py URL QUEUE BLOCK TEXT…`: sends these to an actor, and works on them."""

import sys
import threading

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from failing import handle, set_up, told


def main(url: str, queue: str, block: str, *texts: str) -> None:
    """Until it is ended."""
    broker = RabbitmqBroker(url=url)
    broker.add_middleware(dramatiq.middleware.CurrentMessage())
    set_up(block, queue, broker=broker)

    def take(text: str) -> None:
        retries = dramatiq.middleware.CurrentMessage.get_current_message().options.get("retries", 0)
        told("took", text, retries)
        if text == "again" and retries:
            return
        handle("odd" if text == "again" else text)

    actor = dramatiq.actor(take, broker=broker, queue_name=queue, max_retries=1, min_backoff=50, max_backoff=50)
    broker.declare_queue(queue, ensure=True)
    for text in texts:
        actor.send(text)
    dramatiq.Worker(broker, worker_threads=2, worker_timeout=100).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
