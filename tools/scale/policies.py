"""As many policies as failed queues: start, plan, apply, reload, memory, and the rate over all of them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from signal import SIGHUP
from typing import Any, Final

from tests.support.router import Router
from tools.bench.wire import Wire
from tools.brokers import running
from tools.scale.bench import ROOMY, Bench, Row, patiently, rate, settled, started, used_mb

EACH: Final = 20
SETTLES_S: Final = 5  # the queues' processes hear of their policy one by one
TARGET: Final = "scale.dead"
_EVERY: Final = (
    "    definition: {{max-delivery-attempts: 1, dead-letter-exchange: scale.dead, redelivery-delay: {}ms}}\n"
)


def policies(count: int, delay_ms: int = 1000) -> str:
    """One for each queue, all with values of their own."""
    each = (
        f"  - name: team-{number}\n    match: t{number:05}.#\n{_EVERY.format(delay_ms + number)}"
        for number in range(count)
    )
    return f"version: 1\npolicies:\n{''.join(each)}"


def measure(bench: Bench) -> Iterator[Row]:
    """Classic queues whose messages die at once; what dies there comes by the policies that apply makes."""
    queues = [f"t{number:05}.work" for number in range(bench.size)]
    text = policies(bench.size)
    with running(bench.version, config=ROOMY) as node, bench.router(node, text) as router:
        with Wire(node.amqp_url) as wire:
            wire.exchange(TARGET, "topic")
            wire.queue(TARGET, {"x-queue-type": "quorum"})
            wire.bind(TARGET, TARGET, "#")
            for queue in queues:
                wire.queue(queue, {"x-message-ttl": 0})
            yield Row("router ready after", f"{started(router):.1f} s")
            yield from _applied(bench, router)
            wait_s = patiently(lambda: _is_applied(node, queues[-1]), "the broker does not obey", 300)
            yield Row("the broker obeys after", f"{wait_s:.1f} s")
            time.sleep(SETTLES_S)
            began = time.monotonic()
            for queue in queues:
                wire.fill("", queue, EACH, lambda index: (_HEADER, b"%032d" % index))
            settled(router, EACH * len(queues), 600)
            yield Row(f"{EACH} letters of each queue, routed", rate(EACH * len(queues), time.monotonic() - began))
            depth = wire.depth(TARGET)[0]
            yield Row("letters that arrived", f"{depth:,}", depth == EACH * len(queues))
        yield Row("router's memory", f"{used_mb(router):.0f} MB")
        yield from _reloaded(bench, router)


_HEADER: Final = b"\0\x3c\0\0" + (32).to_bytes(8) + b"\x10\0\2"  # class, weight, size, delivery mode 2


def _is_applied(node: Any, queue: str) -> bool:  # noqa: ANN401 - a node of tools/brokers
    """Asked of the queue itself: the management API tells it seconds later."""
    output = node.rabbitmqctl("list_queues", "name", "policy")
    return any(line.split("\t")[0] == queue and line.split("\t")[1:] not in ([], [""]) for line in output.splitlines())


def _applied(bench: Bench, router: Router) -> Iterator[Row]:
    for what in ("plan", "apply", "plan"):
        seconds, done = _command(router, what)
        bench.say(f"{what}: {seconds:.1f} s, exit {done.returncode}")
        name = "plan again: no changes" if what == "plan" and "no changes" in done.stdout else what
        yield Row(f"dlx-router {name}", f"{seconds:.1f} s", done.returncode in {0, 1} and "error" not in done.stderr)


def _command(router: Router, *words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    named = {f"DLX_ROUTER_{key}": value for key, value in router.settings.items() if key != "HTTP_PORT"}
    began = time.monotonic()
    argv = [sys.executable, "-m", "dlx_router", *words]
    done = subprocess.run(argv, env=kept | named, capture_output=True, text=True, check=False)
    return time.monotonic() - began, done


def _reloaded(bench: Bench, router: Router) -> Iterator[Row]:
    before = router.metric("reloads_total", result="success")
    (router.policies / "policies.yaml").write_text(policies(bench.size, delay_ms=2000), encoding="utf-8")
    router.signal(SIGHUP)
    took = patiently(lambda: router.metric("reloads_total", result="success") > before, "no reload", 300)
    yield Row("all policies changed: in force after", f"{took:.1f} s")
