"""A collector of OpenTelemetry: a real HTTP server that takes OTLP and keeps the spans."""

import gzip
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Span:
    """One span as it came; ids in hex."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str, str], ...]  # role, trace id, span id
    failed: bool
    resource: Mapping[str, Any]

    @property
    def roles(self) -> dict[str, tuple[str, str]]:
        """Role of a link → trace and span that it names."""
        return {role: (trace, span) for role, trace, span in self.links}


class Collector:
    """Listens on a port of its own. `silent`: takes requests and does not answer before it is closed."""

    def __init__(self, *, silent: bool = False, status: int = 200) -> None:
        self.spans: list[Span] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []  # path, headers, body
        self._over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
                outer.requests.append((self.path, dict(self.headers), data))
                if silent:
                    outer._over.wait()
                    return
                if status == 200:
                    outer.spans += decoded(data)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nobody listens any more."""
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def processed(self, **wanted: Any) -> list[Span]:
        """Spans of kind CONSUMER with these dlx_router attributes, in order of their end."""
        matching = [span for span in list(self.spans) if span.kind == "CONSUMER" and _fits(span, wanted)]
        return sorted(matching, key=lambda span: span.end_ns)

    def children(self, span: Span) -> list[Span]:
        """Spans whose parent it is."""
        return [child for child in list(self.spans) if child.parent_id == span.span_id]


def _fits(span: Span, wanted: Mapping[str, Any]) -> bool:
    return all(span.attributes.get(f"dlx_router.{name}") == value for name, value in wanted.items())


def decoded(data: bytes) -> list[Span]:
    """The spans of one request."""
    request = ExportTraceServiceRequest.FromString(data)
    return [
        _span(span, _plain(part.resource.attributes))
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]


def _span(span: Any, resource: Mapping[str, Any]) -> Span:
    links = tuple(
        (_plain(link.attributes)["dlx_router.link"], link.trace_id.hex(), link.span_id.hex()) for link in span.links
    )
    return Span(
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        links,
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in attributes}
