"""Replicas of one router, each an API of its own, that reach each other over a network made of ASGI apps."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from dlx_router.admin.api import (
    comments,
    groups,
    leases,
    letters,
    policies,
    queues,
    sessions,
    tasks,
)
from dlx_router.admin.api.answers import LETTERS_BYTES, PLAIN, Answer, Takes
from dlx_router.admin.api.app import create_app
from dlx_router.admin.api.asgi import WAITING
from dlx_router.admin.api.context import Context, Given, Operator, Viewer
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.tokens import Tokens
from dlx_router.core.names import Names
from dlx_router.core.statemessage import Claim
from dlx_router.index.supervisor import Supervisor
from dlx_router.redrive.selection import compiled
from dlx_router.service.leases.manager import VhostLeases
from dlx_router.service.redrive.tasks import Tasks
from dlx_router.telemetry.readiness import Readiness

KEY: Final = b"k" * 32
ANN, OLGA, BOB, SID = "ann-" + "a" * 20, "olga-" + "o" * 20, "bob-" + "b" * 20, "sid-" + "s" * 20
TOKENS: Final = f"""
tokens:
  - {{name: ann, token: {ANN}, role: viewer}}
  - {{name: olga, token: {OLGA}, role: operator}}
  - {{name: bob, token: {BOB}, role: operator, vhost: b}}
  - {{name: sid, token: {SID}, role: viewer, match: "orders.#"}}
"""
MODULES: Final = (
    queues, groups, letters, comments, policies, tasks, leases,
    sessions,
)  # fmt: skip
REAL: Final = tuple(module.router for module in MODULES)
echo = APIRouter()


@echo.api_route("/echo/{rest:path}", methods=["GET", "POST"], include_in_schema=False)
async def echoed(given: Given, who: Viewer, request: Request, vhost: str = "/") -> Response:
    """What the leader was asked, and by whom."""
    given.led(vhost, who)
    body = (await request.body()).hex()
    fields = {"by": given.router_id, "who": who.name, "role": who.role.name, "vhost": who.vhost, "body": body}
    headers = dict(request.headers)
    return Answer(fields | {"path": request.url.path, "query": request.url.query, "headers": headers})


@echo.post("/change", include_in_schema=False)
async def change(given: Given, who: Operator, vhost: str = "/") -> Response:
    """Something that an operator may do."""
    given.led(vhost, who)
    given.extras.setdefault("done", []).append(who.name)
    return Answer({"by": given.router_id})


@echo.post("/patient", include_in_schema=False)
async def patient(given: Given, who: Viewer, request: Request, wait: float) -> Response:
    """Waits for `given.extras["news"]`, or until whoever asks has gone."""
    given.led_whole("/", who, "news", Takes(wait))
    news: asyncio.Event = given.extras.setdefault("news", asyncio.Event())
    with request.scope[WAITING].until(asyncio.get_running_loop().time() + wait):
        given.extras["waiting"] = given.extras.get("waiting", 0) + 1
        await asyncio.wait_for(news.wait(), wait)
    return Answer({"by": given.router_id, "is_gone": await request.is_disconnected()})


@echo.get("/letters-as-they-lie", include_in_schema=False)
async def large(given: Given, who: Viewer) -> Response:
    """More than any page has."""
    given.led_whole("/", who, "letters", Takes(most_bytes=LETTERS_BYTES))
    return Answer({"body": "x" * (PLAIN.most_bytes + 1)})


@dataclass
class Leading:
    """Who leads a vhost, as a replica has it."""

    is_ours: bool = False
    leader: Claim | None = None
    leaderless_s: float | None = None
    term: int | None = None


@dataclass
class Attendant:
    """A vhost of a replica."""

    vhost: str
    shared_key: bytes = KEY
    leadership: Leading = field(default_factory=Leading)
    topology: object = "a connection"
    journal: Any = field(default_factory=lambda: SimpleNamespace(is_on=True, is_working=True, mode="best-effort"))
    policies: Any = field(default_factory=lambda: SimpleNamespace(policies=(), revision="r"))

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.vhost, compiled, journal_is_on=True, not_leading=self.not_leading)

    @property
    def leases(self) -> VhostLeases:
        return VhostLeases(self.tasks, compiled, journal_is_on=True, not_leading=self.not_leading)

    def policy_for(self, _queue: str, _reason: str) -> None:
        """No policy is about anything here."""

    def breakers(self) -> dict[str, str]:
        return {}

    def not_leading(self) -> str:
        return f"this router does not lead vhost {self.vhost!r}"


class Network(httpx.AsyncBaseTransport):
    """Hosts by name, and all that was sent. `spoil` may answer instead, or change what is sent."""

    def __init__(self) -> None:
        self.apps: dict[str, ASGIApp] = {}
        self.sent: list[httpx.Request] = []
        self.spoil: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.sent.append(request)
        if (answer := self.spoil(request)) is not None:
            return answer
        app = self.apps.get(request.url.host)
        if app is None:
            raise httpx.ConnectError("no route to host")
        return await httpx.ASGITransport(app).handle_async_request(request)


class Replica:
    """One of them, at http://NAME:9719."""

    def __init__(self, network: Network, folder: Path, name: str, vhosts: tuple[str, ...], **how: Any) -> None:
        self.name, self.id, self.network = name, f"{name}-abc123", network
        self.tokens_file = folder / f"{name}.yaml"
        self.vhosts = {vhost: Attendant(vhost, how.get("key", KEY)) for vhost in vhosts}
        tokens: Tokens | None = None
        if how.get("tokens", True):
            self.tokens_file.write_text(TOKENS, encoding="utf-8")
            tokens = Tokens(self.tokens_file)
        attendants: Any = self.vhosts
        index = Supervisor(folder / name, "journal", lambda _vhost: ((), None, None), Readiness())  # type: ignore[arg-type,return-value]  # it is never run
        self.context = Context(
            self.id, Names("dlx-router"), attendants, tokens=tokens, index=index, passes=Passes(how.get("sessions"))
        )
        self.app = create_app(self.context, how.get("routers", (echo, *REAL)), network)
        network.apps[name] = self.app

    @property
    def claim(self) -> Claim:
        return Claim(self.id, f"http://{self.name}:9719")

    def lead(self, vhost: str, *others: "Replica") -> None:
        """The others hear of it."""
        self.vhosts[vhost].leadership = Leading(is_ours=True, term=1)
        for replica in others:
            replica.vhosts[vhost].leadership = Leading(leader=self.claim)

    async def ask(self, method: str, path: str, token: str = OLGA, **how: Any) -> tuple[int, Any]:
        """Status and document."""
        headers = {"authorization": f"Bearer {token}", **how.pop("headers", {})}
        host = how.pop("host", "127.0.0.1:9719")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=f"http://{host}") as client:
            answer = await client.request(method, f"/api/v1{path}", headers=headers, **how)
        return answer.status_code, json.loads(answer.content)
