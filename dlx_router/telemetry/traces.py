"""Create OpenTelemetry spans, one per delivery; the SDK's batch processor exports them beside the messages.

Nothing of OpenTelemetry is imported unless TRACES=otlp. The standard's OTEL_* variables configure the SDK, see
docs/tracing.md. A message never waits for a span: the batch processor drops spans that its queue cannot hold.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dlx_router import __version__
from dlx_router.telemetry.logs import Once

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

Value = str | int
MAX_TEXT: Final = 1024
FLUSH_S: Final = 5.0  # longest wait for the collector when the router stops
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class TracesError(Exception):
    """Traces are enabled but cannot be exported: the text names the variable or package, and what to do."""


class CountingExporter:
    """Count the spans that another exporter sent or failed to send, and log when the collector starts to fail."""

    def __init__(self, exporter: "SpanExporter", counts: dict[str, int]) -> None:
        self.is_failing = False
        self._exporter, self._counts, self._once = exporter, counts, Once()

    def export(self, spans: "Sequence[ReadableSpan]") -> object:
        """Export a batch; runs on the batch processor's thread."""
        result = self._exporter.export(spans)
        self.is_failing = bool(result.value)  # SpanExportResult.SUCCESS is 0
        self._counts["failed" if self.is_failing else "exported"] += len(spans)
        if self.is_failing:
            impact = "these spans are dropped and counted; messages do not wait for them"
            self._once.warn("collector", "traces.not_taken", impact=impact)
        else:
            self._once.healed("collector", "traces.taken")
        return result

    def shutdown(self) -> None:
        """Stop retrying."""
        self._exporter.shutdown()


class Traces:
    """Begin and end spans. Each delivery is a trace of its own; the producer's span is a link, never a parent."""

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

    def begin(self, source: str, started_s: float) -> "Span | None":
        """Begin the span of a delivery read at `started_s` (monotonic clock); return None if it is not sampled."""
        since_ns = time.time_ns() - max(0, int((time.monotonic() - started_s) * 1e9))
        name = f"process {clean(source)}"
        span = self._tracer.start_span(name, context=self._root, kind=self._kind, start_time=since_ns)
        return span if span.is_recording() else None

    def end(self, span: "Span", attributes: Mapping[str, Value], *, producer: str = "", failed: bool = False) -> None:
        """End a span when its delivery is settled; never wait. `producer`: the traceparent of the message."""
        from opentelemetry.trace import get_current_span  # noqa: PLC0415 - an extra

        span.set_attributes(
            {name: clean(value) if isinstance(value, str) else value for name, value in attributes.items()}
        )
        context = self._propagator.extract({"traceparent": producer}, self._root)
        linked = get_current_span(context).get_span_context()
        if linked.is_valid:
            span.add_link(linked, {"dlx_router.link": "producer"})
        if failed:
            span.set_status(self._failed)
        span.end()

    def count_lost(self) -> None:
        """Count a span that could not be created."""
        self._counts["failed"] += 1

    def close(self, left_s: float) -> None:
        """Send the spans that wait within what is left of a drain, 1 to 5 seconds. Blocks; begin no span afterwards."""
        # The SDK's shutdown has no time limit of its own; the process does not wait for a daemon thread.
        thread = threading.Thread(target=self._provider.shutdown, name="traces-shutdown", daemon=True)
        thread.start()
        thread.join(1.0 if self._exporter.is_failing else min(FLUSH_S, max(1.0, left_s)))
        self._exporter.shutdown()


def clean(text: str) -> str:
    """Return text that every collector accepts: broker names may be any bytes, and one would fail a whole batch."""
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()


def open_traces(switch: str, instance: str, counts: dict[str, int]) -> Traces | None:
    """Return the traces that TRACES and OTEL_* enable, None if these disable them; `counts`: spans by result.

    Raises TracesError, which never repeats the value of a variable: it may hold a secret.
    """
    variables = {name: value.strip().lower() for name, value in os.environ.items() if name.startswith("OTEL_")}
    if (
        switch != "otlp"
        or variables.get("OTEL_SDK_DISABLED") == "true"
        or variables.get("OTEL_TRACES_EXPORTER") == "none"
    ):
        return None
    for name in _PROTOCOLS:
        if variables.get(name, "http/protobuf") not in {"", "http/protobuf"}:
            raise TracesError(f"{name}: only http/protobuf is supported; write that, or leave it out")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra

        # The SDK repeats variables, which may hold secrets, in its log; only "Queue full" may pass.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        logging.getLogger("opentelemetry.sdk._shared_internal").setLevel(logging.WARNING)
        return Traces(CountingExporter(OTLPSpanExporter(), counts), counts, instance)
    except ImportError as error:
        raise TracesError(
            f"DLX_ROUTER_TRACES=otlp needs the packages of the extra otel ({error.name} is missing); "
            "install the extra, or set DLX_ROUTER_TRACES=off"
        ) from None
    except (ValueError, OSError) as error:
        raise TracesError(
            f"OTEL_EXPORTER_OTLP_*: a variable cannot be used ({type(error).__name__}); see docs/tracing.md"
        ) from None
