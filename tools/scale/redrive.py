"""A dead-letter queue of many letters, of which a tenth is redriven by a filter: how long, and with how much memory."""

import time
from collections.abc import Iterator
from http.client import SERVICE_UNAVAILABLE
from typing import Any, Final

from tests.support.router import Router
from tools.bench.contestants import INBOX
from tools.bench.letters import KEY
from tools.bench.wire import BenchError, Wire
from tools.brokers import running
from tools.polling import until
from tools.scale.bench import ROOMY, Bench, Died, Row, asked, patiently, rate, settled, started, used_mb

FAILED: Final = "orders"
DLQ: Final = f"DLQ.{FAILED}"
BACK: Final = "mended"
STEP: Final = 100_000
LIMIT_MB: Final = 250
LEADS_S: Final = 60
FILTER: Final = 'header("tenant").matches("[07]$")'  # the last digit of sixteen: two of them
POLICY: Final = 'version: 1\npolicies:\n  - {name: all, match: "#", definition: {max-delivery-attempts: 1}}\n'


def measure(bench: Bench) -> Iterator[Row]:
    """The letters are routed there by the router, as in life; then the task."""
    with running(bench.version, config=ROOMY) as node, bench.router(node, POLICY) as router:
        started(router)
        with Wire(node.amqp_url) as wire:
            for queue in (FAILED, BACK):  # a failed queue that is not there has no dead-letter queue of its own
                wire.queue(queue, {"x-queue-type": "quorum"})
            letters, began = Died(FAILED), time.monotonic()
            for filled in range(0, bench.size, STEP):
                count = min(STEP, bench.size - filled)
                wire.fill(INBOX, KEY, count, letters)
                settled(router, filled + count, 900)
                bench.say(f"{filled + count:,} are dead")
            yield Row("routed into the queue", rate(bench.size, time.monotonic() - began))
            patiently(lambda: wire.depth(DLQ)[0] == bench.size, f"not all letters lie in {DLQ}", LEADS_S)
            meant = sum(int(f"{at % STEP:016x}"[-1], 16) in {0, 7} for at in range(bench.size))
            task, began = _begin(router), time.monotonic()
            most = _ended(bench, router, task)
            took = time.monotonic() - began
            progress = _task(router, task)
            sent = int(progress["counts"]["sent"])
            patiently(lambda: wire.depth(DLQ)[0] + wire.depth(BACK)[0] == bench.size, "letters are missing", LEADS_S)
            left = wire.depth(DLQ)[0]
        yield Row("looked through", f"{took:.0f} s, {rate(bench.size, took)}")
        yield Row("letters sent, of those that the filter means", f"{sent:,} of {meant:,}", sent == meant)
        yield Row("letters left where they were", f"{left:,}", left == bench.size - meant)
        yield Row("router's memory, the most (≤ 250 MB)", f"{most:.0f} MB", most <= LIMIT_MB)


def _begin(router: Router) -> str:
    body = {"vhost": "/", "queue": DLQ, "rate": 0, "filter": FILTER, "to": {"routing_key": BACK}}
    reason = ""

    def made() -> str:
        nonlocal reason
        answer = asked(router, "POST", "/tasks", json=body)
        if answer.is_success:
            return str(answer.json()["id"])
        reason = answer.text
        if answer.status_code != SERVICE_UNAVAILABLE and "does not exist" not in reason:  # the broker tells it late
            raise BenchError(reason)
        return ""

    return until(
        made, lambda: BenchError(f"no task is taken within {LEADS_S} s: {reason}"), within_s=LEADS_S, every_s=0.2
    )


def _task(router: Router, task: str) -> Any:  # noqa: ANN401 - JSON
    return asked(router, "GET", f"/tasks/{task}", params={"vhost": "/"}).json()


def _ended(bench: Bench, router: Router, task: str) -> float:
    """The most memory meanwhile."""
    most, deadline = 0.0, time.monotonic() + 120 + bench.size / 200
    while (progress := _task(router, task))["state"] not in {"done", "stopped", "cancelled"}:
        most = max(most, used_mb(router))
        if time.monotonic() > deadline:
            raise BenchError(f"the task is not done: {progress}")
        time.sleep(0.5)
    return most
