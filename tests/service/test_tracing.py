"""Traces, through the outside: a real collector is told what became of letters, and letters never wait for it."""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from tests.conftest import ROUTERS
from tests.support.bulk import INBOX, law_holds, pour, rests
from tests.support.client import Client, Message
from tests.support.collector import Collector, Span
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")

POLICIES: Final = """
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 200ms}
  - name: mails
    match: "mails.#"
    definition: {max-delivery-attempts: 1}
  - name: tenants
    match: "tenants.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: graves
      dead-letter-routing-key: "dead.{header:x-token}"
      journal: {redact: [X-Token]}
  - name: private
    match: "private.#"
    definition: {max-delivery-attempts: 1, journal: {redact: [traceparent]}}
"""
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
PARENT: Final = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "shop=1,other=2", "baggage": "tenant=42"}
PATIENCE: Final = 30.0
Start = Callable[..., Router]


_numbers: Final = itertools.count(1)


@pytest.fixture(autouse=True, scope="module")
def _plain_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("OTEL_"):
                patch.delenv(name)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        yield server


@dataclass(frozen=True)
class Traced:
    """A router whose spans a collector takes; each test names a queue of its own."""

    vhost: Vhost
    router: Router
    collector: Collector
    amqp: Client

    def work(self, name: str) -> str:
        return self.amqp.queue(name, dead_letter_exchange=INBOX)

    def one(self, queue: str, action: str) -> Span:
        return _span(self.collector, failed_queue=queue, action=action)


@pytest.fixture(scope="module")
def _traced(
    broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Vhost, Router, Collector]]:
    vhost, folder = Vhost.make(broker, f"traced{next(_numbers)}-{os.getpid()}"), tmp_path_factory.mktemp("traced")
    (folder / "policies.yaml").write_text(POLICIES, encoding="utf-8")
    urls = {"amqp_url": vhost.amqp_url, "management_url": vhost.management_url}
    env = {"TRACES": "otlp", "LOG_LEVEL": "debug"}
    router = Router(**urls, policies=folder, log=folder / "router.log", env=env)
    with Collector() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer hush-hush")
        router.start()
        yield vhost, router, collector
        router.close()
    vhost.close()


@pytest.fixture
def traced(_traced: tuple[Vhost, Router, Collector], request: pytest.FixtureRequest) -> Iterator[Traced]:
    vhost, router, collector = _traced
    request.node.stash[ROUTERS] = [router]
    with Client(vhost.amqp_url) as client:
        yield Traced(vhost, router, collector, client)
    eventually(partial(law_holds, router), PATIENCE)


def _work(amqp: Client, name: str) -> str:
    return amqp.queue(name, dead_letter_exchange=INBOX)


def _span(collector: Collector, **wanted: Any) -> Span:
    (span,) = eventually(lambda: collector.processed(**wanted), PATIENCE)
    return span


def _fail(amqp: Client, queue: str) -> None:
    eventually(lambda: (message := amqp.get(queue)) is not None and message.reject(), PATIENCE)


def _imported(router: Router, package: str) -> bool:
    """As PYTHONPROFILEIMPORTTIME tells."""
    return re.search(rf"^import time:.*\| +{package}", router.output, re.MULTILINE) is not None


def _dead(amqp: Client, queue: str) -> Message:
    """The letter in the queue's dead-letter queue, taken out of it."""
    eventually(lambda: amqp.exists(f"DLQ.{queue}"), PATIENCE)
    return _taken(amqp, f"DLQ.{queue}")


def _taken(amqp: Client, queue: str) -> Message:
    message = eventually(lambda: amqp.get(queue), PATIENCE)
    assert message
    return message.ack()


def test_a_retry_and_a_dead_letter_are_traces_of_their_own_that_link_to_the_producer(
    traced: Traced,
) -> None:
    amqp, queue = traced.amqp, traced.work("orders.new")
    amqp.publish("hello", key=queue, headers=PARENT, message_id="m-1")
    _fail(amqp, queue)
    retry = traced.one(queue, "retry")
    assert (retry.name, retry.kind, retry.parent_id) == ("process dlx-router.inbox", "CONSUMER", "")
    attributes = retry.attributes
    assert (attributes["messaging.system"], attributes["messaging.operation.type"]) == ("rabbitmq", "process")
    assert attributes["messaging.destination.name"] == "dlx-router.inbox:orders.new:dlx-router.inbox"
    assert attributes["messaging.message.id"] == "m-1"
    assert (attributes["dlx_router.reason"], attributes["dlx_router.policy"], attributes["dlx_router.attempt"]) == (
        "rejected", "orders", 1,
    )  # fmt: skip
    assert (attributes["dlx_router.failed_queue"], attributes["dlx_router.delay_ms"]) == (queue, 200)
    assert retry.resource["service.name"] == "dlx-router"
    assert retry.links == (("producer", TRACE, SPAN),)
    assert (attributes["dlx_router.way"], attributes["dlx_router.target"]) == ("rung", f"dlx-router.delay.200:{queue}")
    assert retry.start_ns <= retry.end_ns
    _fail(amqp, queue)
    dead = traced.one(queue, "dead_letter")
    assert dead.links == retry.links
    assert (dead.attributes["dlx_router.attempt"], dead.attributes["dlx_router.cause"]) == (2, "attempts_spent")
    assert not dead.failed
    release = traced.one(queue, "release")
    assert len({span.attributes["dlx_router.letter.id"] for span in (retry, dead, release)}) == 1
    assert len({retry.trace_id, dead.trace_id, release.trace_id, TRACE}) == 4
    letter = _dead(amqp, queue)
    assert {name: letter.headers[name] for name in PARENT} == PARENT, "the producer's context is untouched"
    eventually(lambda: traced.router.metric("spans_total", result="exported") >= 3, PATIENCE)


def test_no_span_has_a_body_a_header_or_a_secret(traced: Traced) -> None:
    amqp, collector, router = traced.amqp, traced.collector, traced.router
    amqp.bind(amqp.queue("kept"), amqp.exchange("graves", "topic"), "#")
    tenants, private = traced.work("tenants.new"), traced.work("private.new")
    headers = {"x-token": "very-secret-token", "x-error-message": "secret-error", "x-name": "secret-name"}
    for queue in (tenants, private):
        amqp.publish('{"card": "secret-card"}', key=queue, headers={**headers, **PARENT})
        _fail(amqp, queue)
    hidden = traced.one(private, "dead_letter")
    assert hidden.links == (), "a header that is redacted is not obeyed either"
    traced.one(tenants, "dead_letter")
    assert _taken(amqp, "kept").routing_key == "dead.very-secret-token"
    bodies = b"".join(body for _, _, body in collector.requests)
    assert not [word for word in (b"secret", b"hush-hush", b"guest", b"tenant=42") if word in bodies]
    assert {sent["authorization"] for _, sent, _ in collector.requests} == {"Bearer hush-hush"}
    assert "hush-hush" not in router.output + router.ask("/metrics")[1]


def test_off_nothing_of_opentelemetry_is_imported_and_no_letter_is_told(
    amqp: Client, start_router: Start, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    queue = _work(amqp, "mails.new")
    router = start_router(POLICIES)
    amqp.publish("hello", key=queue, headers=PARENT)
    _fail(amqp, queue)
    _dead(amqp, queue)
    assert router.stop() == 0
    assert _imported(router, "dlx_router")
    assert not _imported(router, "opentelemetry.sdk")  # FastAPI imports the API
    assert collector.requests == []


@pytest.mark.slow
def test_a_collector_that_is_ill_stops_no_letter(
    amqp: Client, start_router: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ill = Collector(silent=True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ill.url)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    try:
        queue = amqp.queue("mails.new", message_ttl=0, dead_letter_exchange=INBOX)
        router = start_router(POLICIES, TRACES="otlp")
        pour(amqp, queue, (f"{number}" for number in range(200)))
        eventually(lambda: amqp.exists(f"DLQ.{queue}"), PATIENCE)
        eventually(lambda: amqp.depth(f"DLQ.{queue}") == 200, PATIENCE)
        rests(router, PATIENCE)
        eventually(lambda: router.metric("spans_total", result="failed"), 60)
        assert router.metric("spans_total", result="exported") == 0
        eventually(partial(law_holds, router), PATIENCE)
        assert router.stop() == 0
    finally:
        ill.close()
