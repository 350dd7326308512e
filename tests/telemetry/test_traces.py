"""Spans: which OTEL_* variables are refused, what is counted, and a stop that does not wait; the collector is real."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.telemetry import traces
from dlx_router.telemetry.traces import Link, Outcome, Traces, TracesError, open_traces
from tests.support.collector import Collector
from tests.support.eventually import eventually

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def counts() -> dict[str, int]:
    return {"exported": 0, "failed": 0}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


def _traces(counts: dict[str, int]) -> Traces:
    opened = open_traces({}, "one", counts)
    assert opened is not None
    return opened


def _end(some: Traces, outcome: Outcome | None = None) -> None:
    begun = some.begin("inbox", time.monotonic())
    assert begun is not None
    some.end(begun, outcome or Outcome({}))


WRONG: Final[Mapping[str, str]] = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1",
}


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_an_unusable_variable_is_refused_by_name_without_its_value(name: str, value: str) -> None:
    with pytest.raises(TracesError, match=f"^{name}: .*; ") as refused:
        open_traces({name: value}, "one", {})
    assert value not in str(refused.value)


def test_a_stop_does_not_wait_for_a_silent_collector(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector(silent=True) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
        some = _traces(counts)
        _end(some)
        before = time.monotonic()
        some.close(0.2)
        assert time.monotonic() - before < 60


def test_refused_spans_are_counted_as_failed(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with Collector(status=400) as refusing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.url)
        some = _traces(counts)
        for number in (1, 2):
            _end(some)
            eventually(lambda at=number: counts["failed"] == at, 60)  # type: ignore[misc]  # a default binds it
        some.close(60)
    assert counts == {"exported": 0, "failed": 2}


@given(text=st.text(st.characters(), max_size=2000))
def test_any_text_becomes_one_that_can_be_sent(text: str) -> None:
    clean = traces.clean(text)
    assert clean.encode().decode() == clean
    assert clean == text[: traces.MAX_TEXT] or "\\" in clean


@pytest.mark.parametrize(
    "text", ["", "x", PARENT[:-1], PARENT.replace("4bf9", "zzzz"), "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\udcff"]
)
def test_what_is_no_trace_context_is_no_link(counts: dict[str, int], collector: Collector, text: str) -> None:
    some = _traces(counts)
    _end(some, Outcome({"name": "\udcff"}, (Link(text, "producer"), Link(PARENT, "previous"))))
    some.close(60)
    (span,) = collector.spans
    assert [role for role, *_ in span.links] == ["previous"]
    assert span.attributes["name"] == "\\udcff"


def test_a_span_begins_when_its_delivery_was_read(counts: dict[str, int], collector: Collector) -> None:
    some, now = _traces(counts), time.time_ns()
    for ago_s in (0.0, 3.0):
        begun = some.begin("inbox", time.monotonic() - ago_s)
        assert begun is not None
        some.end(begun, Outcome({}))
    some.close(60)
    for span, ago_s in zip(collector.spans, (0.0, 3.0), strict=True):
        assert abs(now - span.start_ns - ago_s * 1e9) < 60e9 / 2
