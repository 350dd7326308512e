"""Answers of a router, as its API gives them, and a server that gives them again: a terminal can then be looked at.

The letters are those of docs/tour.md; each document is read by the models of the API in test_screens.py.
"""

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

NOW_MS: Final = 1_795_410_486_000  # 2026-11-23 05:08:06 UTC
LETTER: Final = "1ed0d60940351971610c5d76cc5402ca"
OTHER: Final = "fedc72d9003446ab8f9a6b02d4d1e5a9"
GROUP: Final = "g1-eea8d5709e2564de"
TASK: Final = "5cc63cdf0e4f"
QUEUE: Final = "orders.new"
GRAVE: Final = f"DLQ.{QUEUE}"
LONG: Final = "payments.eu-central-1.card-authorisation.requests.version-2.customer-4711.retries-of-today"  # over 80


def letter(**changed: Any) -> dict[str, Any]:
    return {
        "id": LETTER,
        "vhost": "/",
        "failed_queue": QUEUE,
        "group": GROUP,
        "state": "dead",
        "reason": "rejected",
        "cause": "attempts_spent",
        "policy": "orders",
        "attempts": 5,
        "redrives": 0,
        "first_ms": NOW_MS - 400_000,
        "last_ms": NOW_MS - 200_000,
        "due_ms": None,
        "size": 43,
        "message_id": "order-4711",
        "target": {"exchange": "", "routing_key": GRAVE},
        "sent_to": None,
        "outcome": "dead_lettered",
        "cursor": 7,
        **changed,
    }


WAITING: Final = letter(
    id=OTHER,
    state="retrying",
    cause=None,
    attempts=1,
    due_ms=NOW_MS + 60_000,
    target=None,
    outcome="open",
    failed_queue=LONG,
    cursor=6,
)


def step(kind: str, ago_ms: int, **changed: Any) -> dict[str, Any]:
    return {
        "ts_ms": NOW_MS - ago_ms,
        "kind": kind,
        "source": "dlx-router.inbox",
        "reason": "rejected",
        "cause": None,
        "attempts": 1,
        "redrives": 0,
        "tries": 0,
        "due_ms": None,
        "policy": "orders",
        "exchange": None,
        "routing_key": None,
        "refused": None,
        "redrive_id": None,
        "signature": "ok",
        "revision": "0" * 12,
        "rules": [],
        **changed,
    }


def rule(key: str, value: str, line: int) -> dict[str, str]:
    return {"key": key, "value": value, "set_by": f"policies/orders.yaml:{line} (orders)"}


WHOLE: Final = letter(
    serial=0,
    copies=0,
    parked=None,
    journey=[
        step(
            "retried",
            400_000,
            due_ms=NOW_MS - 395_000,
            rules=[rule("max-delivery-attempts", "5", 13), rule("redelivery-delay", "5s", 14)],
        ),
        step("released", 395_000),
        step("held", 300_000, cause="target_refused", refused=f"queue {GRAVE}", due_ms=NOW_MS - 290_000),
        step(
            "dead_lettered",
            200_000,
            attempts=5,
            cause="attempts_spent",
            exchange="",
            routing_key=GRAVE,
            rules=[rule("max-delivery-attempts", "5", 13)],
        ),
        step("redriven", 100_000, redrives=1, exchange="dlx-router.return", routing_key=QUEUE, redrive_id=TASK),
    ],
    comments=[
        {"ts_ms": NOW_MS - 150_000, "actor": "ann", "text": "asked the warehouse, they count again on Monday\nsee 4711"}
    ],
    event={
        "error": {
            "type": "StockError",
            "message": "item 12 is 7 short in warehouse Rotterdam, and nobody orders any",
            "frame": "shop/stock.py:120 in take",
        },
        "deaths": [
            {
                "queue": QUEUE,
                "reason": "rejected",
                "count": 5,
                "time_ms": NOW_MS - 200_000,
                "exchange": "shop",
                "routing_keys": [QUEUE],
            },
        ],
    },
    body={
        "form": "json",
        "content": {"order": 4711, "address": "1 Main Street"},
        "is_whole": True,
        "content_type": "application/json",
        "sha256": None,
        "why": None,
    },
)
GROUP_OF_IT: Final = {
    "id": GROUP,
    "vhost": "/",
    "failed_queue": QUEUE,
    "reason": "rejected",
    "error_type": "StockError",
    "frame": "shop/stock.py:120 in take",
    "message": "item <n> is <n> short in warehouse Rotterdam, and nobody orders any",
    "first_ms": NOW_MS - 86_400_000,
    "last_ms": NOW_MS - 200_000,
    "deaths": 21,
    "lying": 20,
    "states": {"dead": 20, "redriven": 1},
    "state": "open",
    "until_ms": None,
    "returned": True,
    "note": "fixed in 1.4, deployed on Monday",
    "actor": "ann",
}


SPEC: Final[dict[str, Any]] = {
    "vhost": "/",
    "queue": GRAVE,
    "kind": "redrive",
    "ids": [],
    "group": "",
    "filter": "reason == 'rejected' && age > 3600",
    "to": None,
    "limit": 0,
    "rate": 200.0,
    "cutoff_ms": NOW_MS,
    "canary": {"first": 10, "watch_s": 60.0, "max_dead_percent": 0.0},
    "dry_run": False,
    "not_a_dead_letter_queue": False,
    "edit": None,
}
COUNTS: Final = {
    "seen": 900,
    "sent": 420,
    "left": 300,
    "unreadable": 0,
    "not_letters": 3,
    "meant": 597,
    "expected": 1500,
}


def task(**changed: Any) -> dict[str, Any]:
    spec = {**SPEC, **changed.pop("spec", {})}
    return {
        "v": 1,
        "id": TASK,
        "spec": spec,
        "state": "running",
        "why": "",
        "by": "ann",
        "created_ms": NOW_MS - 125_000,
        "changed_ms": NOW_MS - 2_000,
        "counts": COUNTS,
        "total": 1500,
        "canary_passed": True,
        "canary_from": 0,
        "term": 3,
        "change": 7,
        "groups": [],
        "meant": {"letters": 995, "is_exact": False},
        "came_back": 4,
        **changed,
    }


def listed(whole: dict[str, Any]) -> dict[str, Any]:
    """The task as a list has it."""
    spec = {**whole["spec"], "ids": whole["spec"]["ids"][:3], "id_count": len(whole["spec"]["ids"])}
    kept = {name: value for name, value in whole.items() if name != "groups"}
    return {**kept, "spec": spec, "group_count": len(whole["groups"])}


DRY: Final = task(
    id="a1b2c3d4e5f6",
    spec={"dry_run": True, "filter": "", "canary": None},
    state="done",
    by="cron",
    meant={"letters": 20, "is_exact": True},
    came_back=None,
    why="not letters: 3, left",
    created_ms=NOW_MS - 4_000_000,
    counts={"seen": 23, "sent": 20, "left": 0, "unreadable": 0, "not_letters": 3, "meant": 20, "expected": 23},
    total=23,
    groups=[{"group": GROUP, "failed_queue": QUEUE, "reason": "rejected", "letters": 20}],
)
STOPPED: Final = task(
    id="0f1e2d3c4b5a",
    state="stopped",
    spec={"queue": f"DLQ.{LONG}", "filter": "", "group": GROUP},
    why="canary: 3 of the first 10 letters came back dead (30 %, allowed are 0 %); look at the consumer, "
    "then resume with another canary, or cancel",
)
OTHER_GROUP: Final = "g1-0123456789abcdef"
AUDITS: Final = [
    {
        "event_id": f"audit-{number}",
        "cursor": f"{NOW_MS - number * 60_000}.audit-{number}",
        "vhost": "/",
        "ts_ms": NOW_MS - number * 60_000,
        "actor": "ann",
        "action": action,
        "details": details,
        "signature": signature,
    }
    for number, (action, details, signature) in enumerate(
        [
            ("task.done", {"task": task(state="done"), "mac": "f" * 64}, "ok"),
            ("task.running", {"task": task(), "mac": "f" * 64}, "ok"),
            ("task.running", {"task": task(), "mac": "f" * 64}, "ok"),
            (
                "group.set",
                {"group": GROUP, "state": "ignored", "until_ms": NOW_MS, "note": None, "labels": {"team": ["a"]}},
                "ok",
            ),
            ("queue.import", {"queue": LONG, "limit": 10000}, "bad"),
            (
                "webhook.told",
                {"to": "chat", "id": "msg_1", "kind": "group.opened", "keys": [GROUP], "ts_ms": NOW_MS},
                "ok",
            ),
        ]
    )
]
QUEUES: Final[dict[str, Any]] = {
    "failed": [
        {
            "vhost": "/",
            "failed_queue": QUEUE,
            "states": {"dead": 20, "redriven": 1},
            "last_ms": NOW_MS - 200_000,
            "oldest_ms": NOW_MS - 9_000_000,
            "policy": "orders",
            "breaker": "closed",
        },
        {
            "vhost": "/",
            "failed_queue": LONG,
            "states": {"retrying": 3, "held": 1},
            "last_ms": NOW_MS - 9_000_000,
            "oldest_ms": None,
            "policy": None,
            "breaker": None,
        },
    ],
    "lying": [
        {
            "vhost": "/",
            "exchange": "",
            "routing_key": GRAVE,
            "queue": GRAVE,
            "indexed": 20,
            "depth": 19,
            "checked_ms": NOW_MS - 3_000,
        },
        {
            "vhost": "/",
            "exchange": "dead",
            "routing_key": "orders",
            "queue": None,
            "indexed": 2,
            "depth": None,
            "checked_ms": None,
        },
    ],
    "signatures": {"/": {"ok": 40, "bad": 1}},
    "as_of": {},
}
READY: Final = {
    "ready": False,
    "reasons": [
        "vhost '/': no broker at 10.0.0.1:5672, 10.0.0.2:5672: [Errno 111] Connect call failed; it is tried again"
    ],
    "notes": ["management API: set DLX_ROUTER_MANAGEMENT_URL, or rungs and oldest letters are not counted"],
}
ROUTER: Final = "shop-router-7f9c6d5b8-abcde"
STATUS: Final = {
    "router_id": ROUTER,
    "version": "0.1.0",
    "who": {"name": "ann", "role": "operator", "vhost": None, "match": None},
    "vhosts": {
        "/": {"leads": True, "term": 3, "leader": ROUTER, "leaderless_ms": None, "journal": "best-effort"},
        "mail": {"leads": False, "term": None, "leader": None, "leaderless_ms": 4000, "journal": "best-effort"},
        "shop": {
            "leads": False,
            "term": None,
            "leader": "shop-router-7f9c6d5b8-fghij",
            "leaderless_ms": None,
            "journal": "required",
        },
    },
    "index": {
        "on": True,
        "trouble": None,
        "rebuilds": 0,
        "vhosts": {"/": {"state": "current", "offset": 12, "behind_ms": 1500, "trouble": None}},
    },
    "tokens": {"on": True, "trouble": None},
}
PREVIEW: Final = {
    "queue": GRAVE,
    "messages": 23,
    "unacked": 0,
    "consumers": 1,
    "is_dead_letter_queue": True,
    "objection": f"queue '{GRAVE}' has 1 consumer",
}
POLICIES: Final = {
    "revision": "0" * 12,
    "policies": [
        {"name": "orders", "vhost": None, "selects": "match: orders.#", "priority": 0, "file": "p.yaml:3", "keys": {}}
    ],
}
ANSWERS: Final[Mapping[str, Any]] = {
    "/readyz": READY,
    "/status": STATUS,
    "/queues": QUEUES,
    "/groups": {"groups": [GROUP_OF_IT], "next": None, "as_of": {}},
    f"/groups/{GROUP}": GROUP_OF_IT,
    "/letters": {"letters": [letter(), WAITING], "next": None, "as_of": {}},
    f"/letters/{LETTER}": {"letters": [WHOLE]},
    "/tasks": {"tasks": [listed(task()), listed(DRY), listed(STOPPED)], "next": None},
    "/tasks/preview": PREVIEW,
    f"/tasks/{TASK}": task(),
    f"/tasks/{TASK}/pause": task(state="paused"),
    f"/tasks/{DRY['id']}": DRY,
    f"/tasks/{STOPPED['id']}": STOPPED,
    "/audits": {"audits": AUDITS, "next": None, "as_of": {}},
    "/policies": POLICIES,
    f"/letters/{LETTER}/comments": {"comments": WHOLE["comments"]},
}
STARTED: Final = task(
    spec={"filter": "", "canary": None},
    state="done",
    meant={"letters": 20, "is_exact": True},
    total=23,
    counts={"seen": 23, "sent": 20, "left": 0, "unreadable": 0, "not_letters": 3, "meant": 20, "expected": 23},
    came_back=0,
    why="not letters: 3, left",
)
EDITED: Final = task(
    spec={
        "ids": [LETTER],
        "filter": "",
        "canary": None,
        "rate": 0.0,
        "limit": 1,
        "edit": {"headers": ["mended-by"], "body_bytes": None},
    },
    state="done",
    meant={"letters": 1, "is_exact": True},
    came_back=0,
    total=20,
    counts={"seen": 20, "sent": 1, "left": 19, "unreadable": 0, "not_letters": 0, "meant": 1, "expected": 20},
)


class Terminal(io.StringIO):
    """A stream behind which somebody sits."""

    def isatty(self) -> bool:
        return True


class _Answers(BaseHTTPRequestHandler):
    answers: Mapping[str, Any] = ANSWERS

    def do_GET(self) -> None:
        self._answer(self.answers)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        overrides = {name: value for name, value in asked.items() if name in STARTED["spec"]}
        back = STARTED["came_back"] if asked.get("kind", "redrive") == "redrive" else None
        started = {**STARTED, "spec": {**STARTED["spec"], **overrides}, "came_back": back}
        self._answer({**self.answers, "/tasks": started, "/edits": {**EDITED}})

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self._answer(self.answers)

    def _answer(self, known: Mapping[str, Any]) -> None:
        path = unquote(urlsplit(self.path).path).removeprefix("/api/v1")
        answer = known.get(path)
        data = json.dumps({"error": f"no such thing: {path}"} if answer is None else answer).encode()
        self.send_response(404 if answer is None else 503 if path == "/readyz" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nobody reads along."""


@contextmanager
def router(changed: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Its address. `changed`: paths that are answered otherwise."""
    handler = type("_Changed", (_Answers,), {"answers": {**ANSWERS, **(changed or {})}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
