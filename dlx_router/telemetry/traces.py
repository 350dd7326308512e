"""Create OpenTelemetry spans, one per delivery; the SDK's batch processor exports them beside the messages.

Nothing of OpenTelemetry is imported unless TRACES=otlp. The standard's OTEL_* variables configure the SDK, see
docs/tracing.md. A message never waits for a span: the batch processor drops spans that its queue cannot hold.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dlx_router import __version__
from dlx_router.telemetry.logs import Once

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanContext

Value = str | int
MAX_TEXT: Final = 1024
FLUSH_S: Final = 5.0  # longest wait for the collector when the router stops
_FAILING_FLUSH_S: Final = 1.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class TracesError(Exception):
    """Traces are enabled but cannot be exported: the text names the variable or package, and what to do."""


@dataclass(slots=True)
class Begun:
    """The span of one delivery. `previous`: traceparent of the span that last decided about the same letter."""

    span: "Span"
    previous: str | None = None

    @property
    def traceparent(self) -> str:
        """Return the W3C trace context of this span, which the next span links to."""
        context = self.span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@dataclass(frozen=True, slots=True)
class Link:
    """A reference to another span; `role`: producer or previous."""

    traceparent: str
    role: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a span records of a delivery. `error`: the cause if the message could not reach its target, else ""."""

    attributes: Mapping[str, Value]
    links: tuple[Link, ...] = ()
    error: str = ""


class CountingExporter:
    """Count the spans that another exporter sent or failed to send, and log when the collector starts to fail."""

    def __init__(self, exporter: "SpanExporter", counts: dict[str, int], collector: str) -> None:
        self.is_failing = False
        self._exporter, self._counts, self._collector, self._once = exporter, counts, collector, Once()

    def export(self, spans: "Sequence[ReadableSpan]") -> object:
        """Export a batch; runs on the batch processor's thread."""
        result = self._exporter.export(spans)
        self.is_failing = bool(result.value)  # SpanExportResult.SUCCESS is 0
        self._counts["failed" if self.is_failing else "exported"] += len(spans)
        if self.is_failing:
            impact = "these spans are dropped and counted; messages do not wait for them"
            self._once.warn("collector", "traces.not_taken", collector=self._collector, impact=impact)
        else:
            self._once.healed("collector", "traces.taken", collector=self._collector)
        return result

    def shutdown(self) -> None:
        """Stop retrying."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return at once: this exporter keeps no spans."""
        del timeout_millis
        return True


class Traces:
    """Begin and end spans. Each delivery is a trace of its own; related spans are links, never parents."""

    def __init__(self, exporter: CountingExporter, counts: dict[str, int], instance: str) -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - an extra, imported only when traces are on
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - an extra

        service = {"service.name": "dlx-router", "service.version": __version__, "service.instance.id": instance}
        resource = Resource(service).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))  # type: ignore[arg-type]  # its methods suffice
        self._tracer = self._provider.get_tracer("dlx_router", __version__)
        self._exporter, self._counts = exporter, counts
        self._root, self._propagator = Context(), TraceContextTextMapPropagator()
        self._kind, self._failed = SpanKind.CONSUMER, Status(StatusCode.ERROR)

    def begin(self, source: str, started_s: float) -> Begun | None:
        """Begin the span of a delivery read at `started_s` (monotonic clock); return None if it is not sampled."""
        since_ns = time.time_ns() - max(0, int((time.monotonic() - started_s) * 1e9))
        name = f"process {clean(source)}"
        span = self._tracer.start_span(name, context=self._root, kind=self._kind, start_time=since_ns)
        return Begun(span) if span.is_recording() else None

    def end(self, begun: Begun, outcome: Outcome) -> None:
        """End a span when its delivery is settled; never wait."""
        span = begun.span
        span.set_attributes({name: _value(value) for name, value in outcome.attributes.items()})
        for link in outcome.links:
            context = self._context(link)
            if context is not None:
                span.add_link(context, {"dlx_router.link": link.role})
        if outcome.error:
            span.set_attribute("error.type", clean(outcome.error))
            span.set_status(self._failed)
        span.end()

    def count_lost(self) -> None:
        """Count a span that could not be created."""
        self._counts["failed"] += 1

    def close(self, limit_s: float) -> None:
        """Send the spans that wait, for at most `limit_s` seconds. Blocks; begin no span afterwards."""
        # The SDK's shutdown has no time limit of its own; the process does not wait for a daemon thread.
        thread = threading.Thread(target=self._provider.shutdown, name="traces-shutdown", daemon=True)
        thread.start()
        thread.join(min(limit_s, _FAILING_FLUSH_S) if self._exporter.is_failing else limit_s)
        self._exporter.shutdown()

    def _context(self, link: Link) -> "SpanContext | None":
        """Return the span context that a link names; None if it is not a valid W3C trace context."""
        from opentelemetry.trace import get_current_span  # noqa: PLC0415 - an extra

        carrier = {"traceparent": link.traceparent}
        context = get_current_span(self._propagator.extract(carrier, self._root)).get_span_context()
        return context if context.is_valid else None


def _value(value: Value) -> Value:
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Return text that every collector accepts: broker names may be any bytes, and one would fail a whole batch."""
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()


def asked_for(switch: str, instance: str, counts: dict[str, int]) -> Traces | None:
    """Return the traces that DLX_ROUTER_TRACES enables, None for `off`. Raises TracesError."""
    return open_traces(os.environ, instance, counts) if switch == "otlp" else None


def close(traces: Traces | None, left_s: float) -> None:
    """Send the spans that wait within what is left of a drain, at least one second. Blocks."""
    if traces is not None:
        traces.close(min(FLUSH_S, max(1.0, left_s)))


def open_traces(environment: Mapping[str, str], instance: str, counts: dict[str, int]) -> Traces | None:
    """Return traces as OTEL_* configure them, None if these disable them; `counts`: spans by result.

    Raises TracesError, which never repeats the value of a variable: it may hold a secret.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    collector = _collector(environment)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra

        # The SDK repeats variables, which may hold secrets, in its log; only "Queue full" may pass.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        logging.getLogger("opentelemetry.sdk._shared_internal").setLevel(logging.WARNING)
        return Traces(CountingExporter(OTLPSpanExporter(), counts, collector), counts, instance)
    except ImportError as error:
        raise TracesError(
            f"DLX_ROUTER_TRACES=otlp needs the packages of the extra otel ({error.name} is missing); "
            "install the extra, or set DLX_ROUTER_TRACES=off"
        ) from None
    except (ValueError, OSError) as error:
        raise TracesError(
            f"OTEL_EXPORTER_OTLP_*: a variable cannot be used ({type(error).__name__}); see docs/tracing.md"
        ) from None


def _collector(environment: Mapping[str, str]) -> str:
    """Return the collector's address without path and credentials, for the log. Raises TracesError."""
    for name in _PROTOCOLS:
        if environment.get(name, "").strip().lower() not in {"", "http/protobuf"}:
            raise TracesError(f"{name}: only http/protobuf is supported; write that, or leave it out")
    name = next((name for name in _ENDPOINTS if environment.get(name, "").strip()), "")
    if not name:
        return "http://localhost:4318"
    try:
        parts = urlsplit(environment[name].strip())
        if parts.scheme in {"http", "https"} and parts.hostname:
            return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        pass
    raise TracesError(f"{name}: not a URL; write http://HOST:4318 for example")
