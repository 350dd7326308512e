"""The router of the demo: its policies, its process and what it says about itself."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tools.brokers import free_port
from tools.demo.accounting import Plan
from tools.demo.outage import QUEUE, RULE

ROOT: Final = Path(__file__).parents[2]
_POLICY: Final = """\
version: 1
policies:
  - name: shop
    match: "shop.#"
    definition:
      max-delivery-attempts: {attempts}
      redelivery-delay: {delay}ms
      redelivery-delay-multiplier: 2.0
      redelivery-collision-avoidance-factor: 0.1
      # no dead-letter-exchange: what is out of tries goes to DLQ.<queue>
  - name: shipments
    queue: {queue}
    definition:
      outage: {outage}
"""
_COUNTED: Final = ("deliveries_total", "settled_total", "given_back_total", "in_flight")
_READY_S: Final = 30.0
_DRAIN_S: Final = 30.0


class RouterError(Exception):
    """The router does not run as it should; the text says how it ended."""


@dataclass(frozen=True, slots=True)
class Said:
    """What /metrics says, summed over its labels. `breaker`: 0 closed, 1 half-open, 2 open."""

    deliveries: int = 0
    settled: int = 0
    given_back: int = 0
    in_flight: int = 0
    breaker: int = 0
    actions: Counter[str] = field(default_factory=Counter)


@dataclass
class Router:
    """One process of `dlx-router run`, asked over HTTP."""

    process: subprocess.Popen[bytes]
    port: int
    policies: Path
    log: Path
    http: httpx.Client
    begin: Callable[[], subprocess.Popen[bytes]]  # another process like it

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """The process lives."""
        return self.process.poll() is None

    def said(self) -> Said | None:
        """Its metrics; None where it does not answer."""
        try:
            return _summed(self.http.get("/metrics").text)
        except httpx.TransportError:
            return None

    def await_ready(self) -> None:
        """RouterError with the end of its log if it is not ready in time."""
        deadline = time.monotonic() + _READY_S
        while self.running and time.monotonic() < deadline:
            try:
                if self.http.get("/readyz").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        state = "did not get ready" if self.running else f"ended with exit code {self.process.returncode}"
        raise RouterError(f"the router {state}:\n{self.tail()}")

    def start_again(self) -> None:
        """After `stop`: another one at the same address, with the same index; ready."""
        self.process = self.begin()
        self.await_ready()

    def stop(self) -> None:
        """It has finished what it had in its hands; RouterError if it did not end as it promises."""
        self.process.terminate()
        try:
            code = self.process.wait(_DRAIN_S)
        except subprocess.TimeoutExpired:
            raise RouterError(f"the router did not end within {_DRAIN_S:g} s:\n{self.tail()}") from None
        if code:
            raise RouterError(f"the router ended with exit code {code}:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines that it printed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-15:])


@contextmanager
def running_router(amqp_url: str, folder: Path, plan: Plan) -> Iterator[Router]:
    """A ready router with the shop's policies; its process is gone afterwards, whatever happens."""
    policies = folder / "policies"
    policies.mkdir()
    text = _POLICY.format(attempts=plan.attempts, delay=plan.delay_ms, queue=QUEUE, outage=RULE)
    (policies / "shop.yaml").write_text(text, encoding="utf-8")
    port, log = free_port(), folder / "router.log"
    begin = partial(_started, amqp_url, policies, port, log)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5, trust_env=False) as http:
        router = Router(begin(), port, policies, log, http, begin)
        try:
            router.await_ready()
            yield router
        finally:
            router.process.kill()
            router.process.wait()


def _started(amqp_url: str, policies: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for the demo, which then ends the router in order."""
    argv = [sys.executable, "-m", "dlx_router", "run", "--policies", str(policies)]
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    own = {"AMQP_URL": amqp_url, "HTTP_PORT": str(port), "LOG_FORMAT": "text"}
    own["INDEX_PATH"] = str(log.parent / "index.sqlite")
    env = others | {f"DLX_ROUTER_{key}": value for key, value in own.items()}
    with log.open("ab") as out:
        return subprocess.Popen(
            argv, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def _summed(text: str) -> Said:
    sums: Counter[str] = Counter()
    actions: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("dlx_router_")
            if name == "breaker_state" and sample.labels["queue"] == QUEUE:
                sums[name] = int(sample.value)
            if name not in _COUNTED:
                continue
            sums[name] += int(sample.value)
            if name == "settled_total":
                actions[sample.labels["action"]] += int(sample.value)
    deliveries, settled, given_back, in_flight = (sums[name] for name in _COUNTED)
    return Said(deliveries, settled, given_back, in_flight, sums["breaker_state"], actions)
