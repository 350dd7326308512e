"""What OTEL_* ask for, and the outbox: bounded, never waited for, and closed in time; its collector is a real one."""

import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from dlx_router.telemetry import otel_variables, outbox, traces
from dlx_router.telemetry.otel_variables import Limits, TracesError
from dlx_router.telemetry.traces import Fate, Link, Traces
from tests.support.collector import Collector
from tests.support.eventually import eventually

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NEVER: Final = Limits(queue=10, batch=5, delay_s=600)


@pytest.fixture
def counts() -> dict[str, int]:
    return {"exported": 0, "failed": 0, "dropped": 0}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


def _traces(counts: dict[str, int], limits: Limits) -> Traces:
    return Traces(outbox.Outbox(outbox.exporter(), limits, counts, "here"), ALWAYS_ON, "one")


def _end(some: Traces, fate: Fate | None = None) -> None:
    begun = some.begin("inbox", time.monotonic())
    assert begun is not None
    some.end(begun, fate or Fate({}))


WRONG: Final[Mapping[str, str]] = {
    "OTEL_TRACES_EXPORTER": "zipkin",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
    "OTEL_TRACES_SAMPLER": "sometimes",
    "OTEL_TRACES_SAMPLER_ARG": "1.5",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "soon",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1",
    "OTEL_BSP_MAX_QUEUE_SIZE": "2000000",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0.5",
    "OTEL_BSP_SCHEDULE_DELAY": "-1",
}


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_what_cannot_be_used_is_refused_by_name_and_its_value_is_not_repeated(name: str, value: str) -> None:
    with pytest.raises(TracesError, match=f"^{name}: .*; ") as refused:
        otel_variables.read({name: value})
    assert value not in str(refused.value).partition("; ")[0]


def test_nothing_said_is_the_standards_default_and_empty_is_as_nothing() -> None:
    assert otel_variables.read({}) == otel_variables.read(dict.fromkeys(WRONG, "")) == otel_variables.Asked()


def test_the_standards_limits_hold() -> None:
    variables = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "7",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "3",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
    }
    assert otel_variables.read(variables).limits == Limits(queue=7, batch=3, delay_s=0.25)


def test_the_log_names_the_collector_without_its_credentials() -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:hush@collector.example.com:4318/v1?key=hush"}
    assert otel_variables.read(variables).collector == "https://collector.example.com:4318"


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_standards_own_switches_hold(counts: dict[str, int], name: str, value: str) -> None:
    assert traces.opened({name: value}, "one", counts) is None


def test_what_waits_for_a_full_batch_is_sent_when_the_outbox_closes(
    counts: dict[str, int], collector: Collector
) -> None:
    some = _traces(counts, NEVER)
    for _ in range(3):
        _end(some)
    assert collector.spans == []
    some.close(10)
    assert (len(collector.spans), counts) == (3, {"exported": 3, "failed": 0, "dropped": 0})


def test_a_full_batch_is_sent_at_once(counts: dict[str, int], collector: Collector) -> None:
    some = _traces(counts, NEVER)
    for _ in range(5):
        _end(some)
    eventually(lambda: len(collector.spans) == 5, 30)
    some.close(10)


def test_what_finds_the_outbox_full_is_dropped_and_nobody_waits(
    counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(silent=True) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.url)
        some = _traces(counts, NEVER)
        for _ in range(5):
            _end(some)
        eventually(lambda: silent.requests, 30)  # a batch is on its way and stays there
        for _ in range(25):
            _end(some)
        assert counts["dropped"] == 15
        before = time.monotonic()
        some.close(0.2)
        assert time.monotonic() - before < 50
        assert counts["dropped"] == 25


def test_what_the_collector_refuses_is_counted_and_later_it_is_asked_again(
    counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(status=500) as refusing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.url)
        some = _traces(counts, NEVER)
        for batch in (1, 2):
            for _ in range(5):
                _end(some)
            eventually(lambda at=batch: counts["failed"] == 5 * at, 30)  # type: ignore[misc]  # a default binds it
        some.close(10)
    assert counts == {"exported": 0, "failed": 10, "dropped": 0}


@given(text=st.text(st.characters(), max_size=2000))
def test_any_text_becomes_one_that_can_be_sent(text: str) -> None:
    clean = traces.clean(text)
    assert clean.encode().decode() == clean
    assert clean == text[: traces.MAX_TEXT] or "\\" in clean


@pytest.mark.parametrize(
    "said", ["", "x", PARENT[:-1], PARENT.replace("4bf9", "zzzz"), "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\udcff"]
)
def test_what_is_no_trace_context_is_no_link(counts: dict[str, int], collector: Collector, said: str) -> None:
    some = _traces(counts, NEVER)
    _end(some, Fate({"name": "\udcff"}, (Link(said, "producer"), Link(PARENT, "previous"))))
    some.close(10)
    (span,) = collector.spans
    assert [role for role, *_ in span.links] == ["previous"]
    assert span.attributes["name"] == "\\udcff"


def test_a_span_begins_when_its_delivery_was_read(counts: dict[str, int], collector: Collector) -> None:
    some, now = _traces(counts, NEVER), time.time_ns()
    for ago_s in (0.0, 3.0):
        begun = some.begin("inbox", time.monotonic() - ago_s)
        assert begun is not None
        some.end(begun, Fate({}))
    some.close(10)
    for span, ago_s, _ in zip(collector.spans, (0.0, 3.0), count()):
        assert abs(now - span.start_ns - ago_s * 1e9) < 1e9
