"""The outbox: spans that wait for the collector. Bounded: what finds it full is dropped and counted.

Only this module, loaded where traces are on, imports OpenTelemetry when it is imported itself.
"""

import threading
import time
from collections import deque
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.otel_variables import Limits

_KEY: Final = "collector"
ILL_S: Final = 1.0


def exporter() -> SpanExporter:
    """OTLP over HTTP, set by OTEL_EXPORTER_OTLP_*."""
    return OTLPSpanExporter()


class Outbox(SpanProcessor):
    """Takes ended spans without waiting, and sends them in batches by a thread of its own.

    `counts` is written under exported and failed by that thread only, under dropped by who ends spans only.
    """

    def __init__(self, sink: SpanExporter, limits: Limits, counts: dict[str, int], collector: str) -> None:
        self.counts = counts
        self._sink, self._limits, self._collector = sink, limits, collector
        self._waiting: deque[ReadableSpan] = deque()
        self._wake, self._once = threading.Event(), Once()
        self._is_closing = self._is_closed = self._is_ill = False
        self._sending_s = 0.0  # since when, on the monotonic clock; 0.0: nothing is on its way
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: a span is taken when it ends."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take it, or drop it where too many wait."""
        if self._is_closing or len(self._waiting) >= self._limits.queue:
            self.counts["dropped"] += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= self._limits.batch:
            self._wake.set()

    def close(self, limit_s: float) -> None:
        """Send what waits, for so long at most; what is left is dropped. A collector that is ill gets a second."""
        if self._is_ill or (self._sending_s and time.monotonic() - self._sending_s > ILL_S):
            limit_s = min(limit_s, ILL_S)
        until = time.monotonic() + limit_s
        self._is_closing = True
        self._wake.set()
        self._thread.join(max(0.0, limit_s))
        self._is_closed = True
        self.counts["dropped"] += len(self._waiting)
        self._sink.shutdown()  # ends the pause between two tries
        self._thread.join(max(0.0, until - time.monotonic()))

    def shutdown(self) -> None:
        """As `close`, at once."""
        self.close(0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Not offered: whoever ends spans must never wait."""
        del timeout_millis
        return False

    def _work(self) -> None:
        while not self._is_closing:
            self._wake.wait(self._limits.delay_s)
            self._wake.clear()
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        """While closing, a collector that did not take one batch is not asked for the next."""
        while self._waiting and not self._is_closed:
            if not self._send() and self._is_closing:
                return

    def _send(self) -> bool:
        batch: list[ReadableSpan] = []
        while self._waiting and len(batch) < self._limits.batch:
            batch.append(self._waiting.popleft())
        self._sending_s = time.monotonic()
        try:
            is_taken = self._sink.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - the thread's outermost loop: without it nobody would send the next
            is_taken = False
        self._sending_s, self._is_ill = 0.0, not is_taken
        self.counts["exported" if is_taken else "failed"] += len(batch)
        self._log(is_taken=is_taken)
        return is_taken

    def _log(self, *, is_taken: bool) -> None:
        if is_taken:
            self._once.healed(_KEY, "traces.taken", collector=self._collector)
        else:
            self._once.warn(
                _KEY,
                "traces.not_taken",
                collector=self._collector,
                fate="these spans are dropped and counted; letters do not wait for them",
            )
