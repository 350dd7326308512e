"""Traces: spans for OpenTelemetry. Letters never wait for them: what the collector does not take in time is dropped.

Nothing of OpenTelemetry is imported before `opened` is called, and that is only where TRACES=otlp. The rest is set by
the standard's own variables, OTEL_*. See docs/tracing.md.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dlx_router import __version__
from dlx_router.telemetry.otel_variables import TracesError, is_off, read

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.sampling import Sampler
    from opentelemetry.trace import Span, SpanContext

    from dlx_router.telemetry.outbox import Outbox

Value = str | int
SERVICE: Final = "dlx-router"
MAX_TEXT: Final = 1024
FLUSH_S: Final = 5.0  # at most, when the router ends


@dataclass(slots=True)
class Begun:
    """A span of one delivery, from the read on. `previous`: the span of the letter's earlier decision, as it was noted.

    Times in ns of the wall clock.
    """

    span: "Span"
    decided_ns: int
    previous: str | None = None

    @property
    def traceparent(self) -> str:
        """How the next span names this one (W3C Trace Context)."""
        return _traceparent(self.span.get_span_context())


@dataclass(frozen=True, slots=True)
class Link:
    """A span that this one is about, yet no part of: `role` says which."""

    traceparent: str
    role: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a delivery; `sent` the attributes of the copy that was confirmed, with its span's name."""

    attributes: Mapping[str, Value]
    links: tuple[Link, ...] = ()
    error: str = ""
    sent: tuple[str, Mapping[str, Value]] | None = None


class Traces:
    """Begins and ends spans. Each delivery is a trace of its own; what it is about is linked, never its parent."""

    def __init__(self, outbox: "Outbox", sampler: "Sampler | None", instance: str) -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - nothing of it is imported before it is asked for
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - an extra

        ours = Resource({"service.name": SERVICE, "service.version": __version__, "service.instance.id": instance})
        provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()), sampler=sampler, shutdown_on_exit=False
        )
        provider.add_span_processor(outbox)
        self._tracer = provider.get_tracer("dlx_router", __version__)
        self._outbox, self._nobody, self._propagator = outbox, Context(), TraceContextTextMapPropagator()
        self._consumer, self._client = SpanKind.CONSUMER, SpanKind.CLIENT
        self._failed = Status(StatusCode.ERROR)

    def begin(self, source: str, started_s: float) -> Begun | None:
        """The span of a delivery that was read at `started_s` (monotonic clock); None: it is not sampled."""
        now = time.time_ns()
        since = now - max(0, int((time.monotonic() - started_s) * 1e9))
        name = f"process {clean(source)}"
        span = self._tracer.start_span(name, context=self._nobody, kind=self._consumer, start_time=since)
        return Begun(span, now) if span.is_recording() else None

    def end(self, begun: Begun, fate: Fate) -> None:
        """The delivery is settled; never waits."""
        now, span = time.time_ns(), begun.span
        links = [(named, context) for named in fate.links if (context := self._context(named)) is not None]
        if fate.sent is not None:
            self._sent(begun, *fate.sent, links, now)
        span.set_attributes({name: _value(value) for name, value in fate.attributes.items()})
        for link, context in links:
            span.add_link(context, {"dlx_router.link": link.role})
        if fate.error:
            span.set_attribute("error.type", clean(fate.error))
            span.set_status(self._failed)
        span.end(now)

    def lost(self) -> None:
        """A span could not be made; it is counted."""
        self._outbox.counts["failed"] += 1

    def close(self, limit_s: float) -> None:
        """Send what waits, for so long at most. Blocks; begin no span afterwards."""
        self._outbox.close(limit_s)

    def _sent(
        self,
        begun: Begun,
        name: str,
        attributes: Mapping[str, Value],
        links: "list[tuple[Link, SpanContext]]",
        now: int,
    ) -> None:
        """The copy: from the decision to its confirm."""
        from opentelemetry.trace import Link as Linked  # noqa: PLC0415 - as above
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an extra

        span = self._tracer.start_span(
            clean(name),
            context=set_span_in_context(begun.span, self._nobody),
            kind=self._client,
            attributes={key: _value(value) for key, value in attributes.items()},
            links=[
                Linked(context, {"dlx_router.link": link.role}) for link, context in links if link.role == "producer"
            ],
            start_time=begun.decided_ns,
        )
        span.end(now)

    def _context(self, link: Link) -> "SpanContext | None":
        """What a link names; None where it is no trace context of the standard's."""
        from opentelemetry.trace import get_current_span  # noqa: PLC0415 - as above

        carrier = {"traceparent": link.traceparent}
        context = get_current_span(self._propagator.extract(carrier, self._nobody)).get_span_context()
        return context if context.is_valid else None


def _traceparent(context: "SpanContext") -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _value(value: Value) -> Value:
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Text that every collector takes: names of the broker are any bytes, and one would cost its whole batch."""
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()


def asked_for(setting: str, instance: str, counts: dict[str, int]) -> Traces | None:
    """As `opened`, where the router's own setting asks for it."""
    return opened(os.environ, instance, counts) if setting == "otlp" else None


def close(traces: Traces | None, left_s: float) -> None:
    """Send what waits, in what is left of a drain, a second at least; blocks."""
    if traces is not None:
        traces.close(min(FLUSH_S, max(1.0, left_s)))


def opened(environment: Mapping[str, str], instance: str, counts: dict[str, int]) -> Traces | None:
    """Traces as OTEL_* say; None where these switch them off. Raises TracesError. `counts`: spans by result."""
    if is_off(environment):
        return None
    asked = read(environment)
    try:
        from dlx_router.telemetry.outbox import Outbox, exporter  # noqa: PLC0415 - see the module

        return Traces(Outbox(exporter(), asked.limits, counts, asked.collector), None, instance)
    except ImportError as error:
        raise TracesError(
            f"DLX_ROUTER_TRACES=otlp needs the packages of the extra otel ({error.name} is missing); "
            "install the extra, or set DLX_ROUTER_TRACES=off"
        ) from None
    except (ValueError, OSError) as error:  # its words may hold what was set, and that may be a secret
        raise TracesError(
            f"OTEL_EXPORTER_OTLP_*: a variable cannot be used ({type(error).__name__}); see docs/tracing.md"
        ) from None
