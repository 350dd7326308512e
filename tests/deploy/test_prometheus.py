"""A real Prometheus scrapes a real router: every question of every dashboard and alert has an answer."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.deploy.test_files import RULES, alerts, tool
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

POLICIES: Final = """
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition:
      max-delivery-attempts: 2
      redelivery-delay: 100ms
      dead-letter-queue-type: classic
      outage: {deaths: 1000, within: 1s, probe-every: 1s}  # a breaker that stays closed
      alert: {depth: 100, oldest: 1h, rate: 0.5}
"""
CONFIG: Final = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - job_name: dlx-router
    static_configs: [{targets: ["127.0.0.1:PORT"]}]
"""
NOT_OURS: Final = "rabbitmq_"


@pytest.fixture
def prometheus(router: Router, tmp_path: Path) -> Iterator[str]:
    """Its address."""
    with running(router.port, tmp_path) as address:
        yield address


@pytest.fixture
def router(amqp: Client, vhost: Vhost, start_router: Callable[..., Router]) -> Router:
    """One that has retried, dead-lettered and parked."""
    router = start_router(POLICIES)
    amqp.queue("orders.new", dead_letter_exchange="dlx-router.inbox")
    for number in range(20):
        amqp.publish(str(number), key="orders.new", timestamp=1_700_000_000)
    for _ in range(40):
        amqp.fail("orders.new")
    eventually(lambda: amqp.exists("DLQ.orders.new") and amqp.depth("DLQ.orders.new") == 20, within=30)
    return router


@contextmanager
def running(port: int, folder: Path) -> Iterator[str]:
    """A private Prometheus with the shipped rules."""
    text = CONFIG.replace("RULES", str(RULES)).replace("PORT", str(port))
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    address = f"127.0.0.1:{brokers.free_port()}"
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [tool("prometheus"), *flags, f"--web.listen-address={address}"], stdout=quiet, stderr=quiet
    ) as process:
        try:
            yield address
        finally:
            process.terminate()


def ask(address: str, question: str) -> list[dict[str, Any]]:
    """The vector."""
    try:
        answer = httpx.get(f"http://{address}/api/v1/query", params={"query": question}, timeout=60, trust_env=False)
    except httpx.TransportError:  # not up yet
        return []
    assert answer.status_code == 200, answer.text
    result: list[dict[str, Any]] = answer.json()["data"]["result"]
    return result


def answered(address: str, question: str) -> bool:
    """There is something. Variables of Grafana are what it would put there."""
    for variable, value in (("$__rate_interval", "30s"), ('"$policy"', '".*"')):
        question = question.replace(variable, value)
    return bool(ask(address, question))


def dashboards() -> Iterator[tuple[str, str]]:
    """Where each question of a dashboard is asked, and the question."""
    for path in sorted((RULES.parent / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            yield from ((f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"])


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_every_question_has_an_answer(prometheus: str) -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    names = {name for rule in alerts() for name in re.findall(r"dlx_router[a-z0-9_:]+", rule["expr"])}
    names |= {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
    questions = [*dashboards(), *((f"rules: {name}", name) for name in sorted(names))]

    def silent() -> list[tuple[str, str]]:
        return [(where, question) for where, question in questions if not answered(prometheus, question)]

    eventually(lambda: not silent(), within=60, every=1)  # rates need two scrapes, rules one more
    assert not silent()
