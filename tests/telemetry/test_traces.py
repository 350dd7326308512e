"""Spans: which OTEL_* variables are refused, what is counted, and a stop that does not wait; the collector is real."""

import time

import pytest

from dlx_router.telemetry.traces import MAX_TEXT, Traces, TracesError, clean, open_traces
from tests.support.collector import Collector
from tests.support.eventually import eventually

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def counts() -> dict[str, int]:
    return {"exported": 0, "failed": 0}


def _traces(counts: dict[str, int]) -> Traces:
    opened = open_traces("otlp", "one", counts)
    assert opened is not None
    return opened


def _end(some: Traces, producer: str = "", ago_s: float = 0.0) -> None:
    span = some.begin("inbox", time.monotonic() - ago_s)
    assert span is not None
    some.end(span, {"name": "\udcff"}, producer=producer)


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")],
)
def test_an_unusable_protocol_is_refused_by_name_without_its_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TracesError, match=f"^{name}: .*; ") as refused:
        open_traces("otlp", "one", {})
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
        _end(some)
        eventually(lambda: counts["failed"] == 1, 60)
        some.close(60)
    assert counts == {"exported": 0, "failed": 1}


@pytest.mark.parametrize("text", ["", "x", "\udcff", "ü" * 2000])
def test_any_text_becomes_one_that_can_be_sent(text: str) -> None:
    assert clean(text).encode().decode() == clean(text)
    assert clean(text) == text[:MAX_TEXT] or "\\" in clean(text)


def test_a_span_begins_when_its_delivery_was_read_and_links_to_a_valid_context_only(
    counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    invalid = [
        "",
        "x",
        PARENT[:-1],
        PARENT.replace("4bf9", "zzzz"),
        "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
        "\udcff",
    ]
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        some, now = _traces(counts), time.time_ns()
        for text in invalid:
            _end(some, text)
        _end(some, PARENT, ago_s=3000.0)
        some.close(60)
    *others, last = collector.spans
    assert [span.links for span in others] == [()] * len(invalid)
    assert (list(last.roles), last.attributes["name"]) == (["producer"], "\\udcff")
    assert abs(now - last.start_ns - 3000e9) < 1000e9
