"""A router that says what a test wants, in the shapes of the API: for what no real one would ever be made to say."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
from starlette.types import ASGIApp

from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.tokens import Tokens
from dlx_router.console.app import create_app
from dlx_router.console.router_api import RouterApi
from dlx_router.telemetry.wall_clock import wall_ms

TOKEN: Final = "olga-" + "o" * 20
WHEN: Final = 1_700_000_000_000
HOME: Final = "http://127.0.0.1:9718"
LEASE: Final = "9c" * 12


def letter(text: str) -> dict[str, Any]:
    """A letter with this text wherever others write."""
    place = {"exchange": "", "routing_key": text}
    return {
        "id": "4f2445e91123" + "0" * 20,
        "vhost": text,
        "failed_queue": text,
        "group": "g1-1",
        "state": "dead",
        "reason": text,
        "cause": text,
        "policy": text,
        "attempts": 1,
        "redrives": 0,
        "first_ms": WHEN,
        "last_ms": WHEN,
        "due_ms": None,
        "size": 3,
        "message_id": text,
        "target": place,
        "sent_to": None,
        "outcome": "dead_lettered",
        "cursor": 7,
    }


def whole(text: str) -> dict[str, Any]:
    """As the page of one letter has it."""
    step = {
        "ts_ms": WHEN,
        "kind": "dead_lettered",
        "source": text,
        "reason": text,
        "cause": text,
        "attempts": 1,
        "redrives": 0,
        "tries": 0,
        "due_ms": None,
        "policy": text,
        "exchange": text,
        "routing_key": text,
        "refused": text,
        "redrive_id": text or None,
        "signature": "bad",
        "revision": text,
        "rules": [{"key": text, "value": text, "set_by": text}],
    }
    death = {"queue": text, "reason": text, "count": 1, "time_ms": WHEN, "exchange": text, "routing_keys": [text]}
    event = {
        "headers": {text: json.dumps(text)},
        "props": {"type": text},
        "deaths": [death],
        "redacted": [text],
        "error": {"type": text, "message": text, "frame": text},
    }
    body = {
        "form": "text",
        "content": text,
        "is_whole": True,
        "content_type": text,
        "sha256": None,
        "why": text,
    }
    leased = {**step, "redrive_id": LEASE, "due_ms": WHEN + 30_000}
    steps = [step, step, *({**leased, "kind": kind} for kind in ("leased", "discarded", "lease_ended"))]
    noted = [{"ts_ms": WHEN + 1, "actor": text, "text": text}]
    return {**letter(text), "journey": steps, "comments": noted, "event": event, "body": body}


def group(text: str) -> dict[str, Any]:
    return {
        "id": "g1-1",
        "vhost": text,
        "failed_queue": text,
        "reason": text,
        "error_type": text,
        "frame": text,
        "message": text,
        "first_ms": WHEN,
        "last_ms": WHEN,
        "deaths": 1,
        "lying": 1,
        "states": {"dead": 1},
        "state": "open",
        "until_ms": None,
        "returned": True,
        "note": text,
        "actor": text,
    }


def task(text: str, **changed: Any) -> dict[str, Any]:
    spec = {
        "vhost": text,
        "queue": text,
        "kind": "redrive",
        "ids": [text],
        "group": text,
        "filter": text,
        "to": None,
        "limit": 0,
        "rate": 0.0,
        "cutoff_ms": WHEN,
        "canary": None,
        "dry_run": True,
        "edit": None,
        "not_a_dead_letter_queue": False,
    }
    counts = {"seen": 3, "sent": 3, "left": 0, "unreadable": 0, "not_letters": 0, "meant": 3, "expected": 3}
    row = {"group": "g1-1", "failed_queue": text, "reason": text, "letters": 3}
    return {
        "id": "5cc63cdf0e4f",
        "spec": spec,
        "state": "done",
        "why": text,
        "by": text,
        "created_ms": WHEN,
        "changed_ms": WHEN,
        "counts": counts,
        "total": 3,
        "canary_passed": False,
        "meant": {"letters": 3, "is_exact": True},
        "came_back": 1,
        "groups": [row],
        **changed,
    }


def listed(text: str) -> dict[str, Any]:
    """The task as a list has it."""
    whole = task(text)
    spec = whole["spec"] | {"id_count": 7}
    return {name: value for name, value in whole.items() if name != "groups"} | {"spec": spec, "group_count": 1}


def in_hex(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, with bodies as they are sent to whoever asks for their bytes."""
    for entry in answer.get("letters", []):
        body = entry.get("body") or {}
        if body.get("form") == "text":
            body |= {"form": "hex", "content": body["content"].encode(errors="surrogatepass").hex()}
    return answer


class Liar:
    """An ASGI app. `text` stands wherever others write; `role` is that of the token; `asked` has each change.

    `changed` is what its task says otherwise, `details` those of an audit about a task.
    """

    def __init__(self, text: str = "plain", role: str = "operator") -> None:
        self.text, self.role = text, role
        self.tokens = {TOKEN}
        self.passes = Passes()
        self.asked: list[tuple[str, str, Any]] = []
        self.padding = 0
        self.header = ""
        self.changed: dict[str, Any] = {}
        self.details: dict[str, Any] = {}

    def answers(self, path: str) -> dict[str, Any] | None:
        text = self.text
        place = {
            "vhost": text,
            "exchange": "",
            "routing_key": text,
            "queue": text,
            "indexed": 1,
            "depth": 1,
            "checked_ms": WHEN,
        }
        policy = {"name": text, "vhost": text, "selects": text, "priority": 0, "file": text, "keys": {"delay": text}}
        audit = {
            "event_id": "a",
            "vhost": text,
            "ts_ms": WHEN,
            "actor": text,
            "action": "task.done" if self.details else text,
            "details": self.details or {text: text},
            "signature": "none",
        }
        preview = {
            "queue": text,
            "messages": 1,
            "unacked": 0,
            "consumers": 0,
            "is_dead_letter_queue": False,
            "objection": text,
        }
        failed = {"vhost": text, "failed_queue": text, "states": {"dead": 1}, "last_ms": WHEN}
        failed |= {"oldest_ms": WHEN, "policy": text, "breaker": "open"}
        as_of = {text: None}
        known: dict[str, dict[str, Any]] = {
            "/readyz": {"ready": False, "reasons": [text], "notes": [text]},
            "/status": {
                "who": {"name": text, "role": self.role},
                "router_id": text,
                "vhosts": {text: {"leaderless_ms": 12_000, "leader": None}, "b": {"leader": "x"}},
            },
            "/queues": {"failed": [failed], "lying": [place], "as_of": as_of},
            "/groups": {"groups": [group(text)], "next": 50, "as_of": as_of},
            "/groups/g1-1": group(text),
            "/letters": {"letters": [letter(text)], "next": "~e30", "as_of": as_of},
            "/tasks": {"tasks": [listed(text)], "next": f"{WHEN}.5cc63cdf0e4f"},
            "/edits": task(text),
            "/tasks/preview": preview,
            "/policies": {"revision": text, "policies": [policy]},
            "/letters/4f/comments": {"comments": []},
            "/explain": {
                "queue": text,
                "queue_type": text,
                "left_out": [text],
                "policies": [text],
                "keys": [{"key": text, "value": text, "set_by": text}],
            },
            "/audits": {"audits": [audit], "next": "7.a", "as_of": as_of},
        }
        if re.fullmatch("/letters/[^/]+", path):
            entry = whole(text)
            entry["event"]["headers"]["x-big"] = json.dumps(self.header)
            return {"letters": [entry]}
        if re.fullmatch("/tasks/[0-9a-f]+(/(pause|resume|cancel))?", path):
            return task(text, **self.changed)
        return known.get(path)

    def knows(self, token: str) -> bool:
        """Whether this is one of its tokens, or a pass for one."""
        session = self.passes.session(token, wall_ms())
        mine = map(Tokens.digest, self.tokens)
        return token in self.tokens if session is None else any(self.passes._is(session, digest) for digest in mine)

    def session(self, method: str, token: str) -> dict[str, Any]:
        old = self.passes.session(token, wall_ms())
        if method == "DELETE" and old is not None:
            self.passes.end(old)
        return {"word": self.passes.begin(Tokens.digest(token), wall_ms())[0]}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/api/v1")
        headers = dict(scope["headers"])
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        status, document = 200, self.answers(path)
        if path == "/sessions" and self.knows(token):
            document = self.session(scope["method"], token)
        elif path != "/readyz" and not self.knows(token):
            status, document = 401, {"error": "the token is not valid", "problems": []}
        elif document is not None and b"form=hex" in scope["query_string"]:
            document = in_hex(document)
        elif document is None:
            status, document = 404, {"error": f"there is no {self.text}", "problems": []}
        elif scope["method"] != "GET":
            body = (await receive()).get("body") or b"null"
            self.asked.append((scope["method"], path, json.loads(body)))
            document = task(self.text) if path in {"/tasks", "/edits"} else document
        data = json.dumps({**document, "padding": "x" * self.padding}).encode()
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": data})


def console(liar: Liar, **how: Any) -> ASGIApp:
    """The console over it."""
    router = RouterApi("one", "http://router:9719", httpx.ASGITransport(liar))
    return create_app([router], Hosts("127.0.0.1"), **how)


def browser(app: ASGIApp) -> httpx.AsyncClient:
    """A client that keeps cookies and follows nothing by itself."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=("127.0.0.1", 1)), base_url=HOME)


@asynccontextmanager
async def logged_in(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a session."""
    async with browser(app) as client:
        answer = await client.post("/login", data={"token": TOKEN})
        assert answer.status_code == 303, answer.text
        yield client


def csrf(page: str) -> str:
    """What the page's forms carry."""
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None, page
    return token[1]
