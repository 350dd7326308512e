"""What nobody should send by HTTP, as strategies: well-formed, nearly so, and broken on purpose."""

import json
from typing import Final

from hypothesis import strategies as st

METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "G\x00T", ""]
VERSIONS: Final = ["HTTP/1.1"] * 20 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "http/1.1", ""]
PATHS: Final = [
    "/livez", "/readyz", "/metrics", "/api/v1/letters", "/api/v1/groups", "/api/v1/queues", "/api/v1/policies",
    "/api/v1/explain", "/api/v1/audits", "/api/v1/status", "/api/v1/tasks", "/api/v1/edits", "/api/v1/queues/import",
    "/api/v1/index/rebuild", "/api/v1/openapi.json", "/api/", "/api", "/", "*", "//evil/api/v1/status",
    "http://localhost/metrics", "/api/v1/letters/{}", "/api/v1/groups/{}", "/api/v1/tasks/{}", "/{}", "/api/v1/{}",
    "/api/v1/tasks/{}/letters", "/api/v1/tasks/{}/pause", "/api/v1/tasks/{}/resume", "/api/v1/tasks/{}/cancel",
    "/api/v1/letters/{}/comments",
]  # fmt: skip
SEGMENTS: Final = [
    "%2f", "%00", "..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%c0%af", "%c0%ae%c0%ae", "%ff", "%u0041", "%", "%2",
    "%25%32%66", "a" * 3000, "g1-0", "9" * 400, "-1", "%ed%a0%80", "%0d%0aX:1", "%f0%9f%92%a9", "1e999", "null", "'--",
    "{", "\x80",
]  # fmt: skip
KEYS: Final = [
    "vhost", "queue", "limit", "after", "policy", "cause", "q", "text", "since", "until", "state", "reason", "match",
    "group", "cursor", "exchange", "headers", "attempts", "count", "bodies", "type", "sort", "place", "id", "where", "",
]  # fmt: skip
VALUES: Final = [
    *SEGMENTS, "%2F", "/", "0", "1", "1000", "-9223372036854775809", "1" * 5000, "NaN", "true", "2026-01-01T00:00:00Z",
    "%22", "*", "a%20OR%20b", "%22%22%22", "NEAR(a%2C9999999)", "a*b*c*d", "(((((((((", "%E2%80%AE", "fuzzed", "0.5h",
]  # fmt: skip
NAMES: Final = [
    "kind", "queue", "vhost", "to", "filter", "where", "rate", "limit", "dry_run", "canary", "state", "note",
    "until_ms", "letter", "body", "headers", "confirm", "reason", "policy", "why",
]  # fmt: skip
KINDS: Final = ["redrive", "park", "discard", "export", "edit", "", None, 7, "DISCARD"]
HOSTS: Final = ["localhost", "127.0.0.1:9719", "[::1]", "evil.example", "a@localhost", "", "x" * 9000, "\xff", "l\x00h"]
_UPGRADE: Final = "Connection: Upgrade, HTTP2-Settings\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA"
HEADERS: Final = [
    "Content-Length: 0", "Content-Length: -1", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: 0x10",
    "Content-Length: 99999999999999999999", "Content-Length: 1\r\nContent-Length: 2", "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: gzip, chunked",
    "Expect: 100-continue", "Expect: 200-ok", f"Upgrade: websocket\r\n{_UPGRADE}", f"Upgrade: h2c\r\n{_UPGRADE}",
    "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Connection: keep-alive", "Connection: close, close",
    "Connection: \xff", "Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
    "Content-Type: application/json", "Content-Type: text/plain", "Content-Type: application/json; charset=utf-7",
    "Content-Type: multipart/form-data; boundary=", "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: \xff/\xfe", "Authorization: Bearer", "Authorization: Bearer " + "x" * 9000,
    "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=", "Authorization: \xe9\x00", "Content-Encoding: gzip",
    "Range: bytes=0-0,1-1,2-2", "Accept: \x00", "Cookie: " + "a=b; " * 3000, ": empty", "X", " folded",
    "X-Forwarded-For: 127.0.0.1", "X-HTTP-Method-Override: DELETE", "\r", "X: \r\n\tfolded", "Accept-Encoding: br",
]  # fmt: skip
BODIES: Final = [
    b"[" * 50_000, b'{"a":' * 50_000, b"[" * 500 + b"]" * 500, b"NaN", b"Infinity", b"-" + b"9" * 6000, b"", b"null",
    b'{"kind":1e400}', b'{"kind":"export","kind":"discard"}', b'"\\ud800"', b'{"queue":"\\ud800\\u0000"}', b"{", b"0",
    b"\xff\xfe{}", b"\x00" * 2000, b"\x1f\x8b\x08\x00", b"x" * 70_000, b"x" * 1_100_000,
]  # fmt: skip
_LINE: Final = b"GET /livez HTTP/1.1\r\n"
WHOLE: Final = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n" * 5000,
    b"GET /livez\r\n", b"AMQP\x00\x00\x09\x01", b"\x00" * 4096, b"GET /livez HTTP/1.1\n\n", b"\xff" * 300,
    b"GET  /livez  HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 60_000, _LINE + b"A: b\r\n" * 5000 + b"\r\n",
    _LINE + b"A:b" * 9000,
]  # fmt: skip
INSERTED: Final = [b"\x00", b"\r", b"\n", b"\r\n\r\n", b" ", b"\xff", b"\t"]

_segment = st.sampled_from(SEGMENTS) | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
_leaf = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=20)
_json = st.recursive(
    _leaf | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=12,
)
_task = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS), "queue": st.text(max_size=9)}, optional=dict.fromkeys(NAMES[2:], _json)
)


@st.composite
def _target(draw: st.DrawFn) -> str:
    path = draw(st.sampled_from(PATHS)).replace("{}", draw(_segment))
    pairs = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES) | _segment), max_size=4))
    flood = draw(st.sampled_from([1, 1, 1, 1, 50, 600]))
    query = "&".join([f"{key}={value}" for key, value in pairs] * flood)[:14_000]
    return f"{path}?{query}" if query else path


@st.composite
def _body(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(st.sampled_from(BODIES) | st.binary(max_size=200))
    return json.dumps(draw(_json | _task)).encode()


@st.composite
def _chunked(draw: st.DrawFn, body: bytes) -> bytes:
    right = b"%x" % len(body)
    size = draw(st.sampled_from([right, b"0", b"-1", b"ffffffffffffffffff", right + b";a=b", b"zz", b"", b" 5"]))
    end = draw(st.sampled_from([b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"\r\n0\r\nTrailer: x\r\n\r\n", b"", b"\n0\n\n"]))
    return size + b"\r\n" + body[:20_000] + end


@st.composite
def _request(draw: st.DrawFn, tokens: list[str]) -> bytes:
    version = draw(st.sampled_from(VERSIONS))
    method = draw(st.sampled_from(["GET", "POST"] * 6 + METHODS))
    lines = [f"{method} {draw(_target())} {version}"]
    lines += [
        f"Host: {host}"
        for host in draw(st.sampled_from([["localhost"]] * 30 + [[], ["localhost", "evil"], *([h] for h in HOSTS)]))
    ]
    if tokens and draw(st.integers(0, 9)) > 0:
        lines.append(f"Authorization: Bearer {draw(st.sampled_from(tokens))}")
    lines += draw(st.just([]) | st.just([]) | st.lists(st.sampled_from(HEADERS), max_size=3))
    body = draw(st.just(b"") | _body())
    framed = draw(st.sampled_from(["length"] * 8 + ["chunked", "short", "none"]))
    if framed == "chunked":
        lines.append("Transfer-Encoding: chunked")
        body = draw(_chunked(body))
    elif body and framed != "none":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body) + (framed == 'short')}"]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


@st.composite
def _mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    at = draw(st.integers(0, min(len(whole), 2000)))
    match draw(st.sampled_from(["as it is"] * 12 + ["cut", "flip", "put in", "twice"])):
        case "cut":
            return whole[:at]
        case "flip" if at < len(whole):
            return whole[:at] + bytes([whole[at] ^ (1 << draw(st.integers(0, 7)))]) + whole[at + 1 :]
        case "put in":
            return whole[:at] + draw(st.sampled_from(INSERTED)) + whole[at:]
        case "twice":
            return whole + whole
        case _:
            return whole


@st.composite
def _sent(draw: st.DrawFn, tokens: list[str]) -> bytes:
    if draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from(WHOLE))
    return draw(_mutated(draw(_request(tokens))))


@st.composite
def _connection(draw: st.DrawFn, tokens: list[str]) -> list[bytes]:
    """What one connection sends, in parts."""
    whole = b"".join(draw(st.lists(_sent(tokens), min_size=1, max_size=2)))
    at = draw(st.integers(0, min(len(whole), 500)))
    return [part for part in (whole[:at], whole[at:]) if part] or [b"\r\n"]


def connections(tokens: list[str]) -> st.SearchStrategy[list[list[bytes]]]:
    """Several connections at once."""
    return st.lists(_connection(tokens), min_size=1, max_size=16)
