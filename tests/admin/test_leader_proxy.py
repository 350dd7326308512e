"""Any replica may be asked: the one that leads answers, who asks stays who they are, and nobody else is believed."""

import asyncio
import json
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dlx_router.admin.api import context, envelope, leader_proxy, policies
from dlx_router.admin.api.answers import PLAIN
from dlx_router.admin.api.envelope import Answered
from dlx_router.admin.api.envelope import Request as Handed
from dlx_router.config.api_access.tokens import LOCAL, Role, caller
from dlx_router.core.leases import Claims, handle_of
from dlx_router.core.statemessage import Claim
from dlx_router.telemetry.wall_clock import wall_ms
from tests.admin.replicas import ANN, BOB, KEY, OLGA, Leading, Network, Replica
from tests.journal.conftest import soon

WHO: Final = caller("olga", Role.OPERATOR)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setattr(leader_proxy, "WAIT_S", 0.3)
    monkeypatch.setattr(context, "KNOWN_S", 0.0)
    return Network()


@pytest.fixture
def pair(network: Network, tmp_path: Path) -> tuple[Replica, Replica]:
    """The first one leads, the second one is asked."""
    first, second = (Replica(network, tmp_path, name, ("/", "b")) for name in ("first", "second"))
    for vhost in ("/", "b"):
        first.lead(vhost, second)
    return first, second


# -- who asks, and what -----------------------------------------------------------------------------------------------


async def test_the_leader_answers_whoever_is_asked_and_knows_who_asks(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    for replica in pair:
        for token, name, role, vhost in ((ANN, "ann", "VIEWER", "/"), (BOB, "bob", "OPERATOR", "b")):
            status, answer = await replica.ask("GET", "/echo/a", token, params={"vhost": vhost})
            assert (status, answer["by"], answer["who"], answer["role"]) == (200, first.id, name, role)
            assert answer["vhost"] == (None if name == "ann" else "b"), "the scope is kept"
    assert await second.ask("POST", "/change", OLGA) == (200, {"by": first.id})
    assert first.context.extras["done"] == ["olga"]


async def test_a_role_that_is_too_low_is_too_low_everywhere(pair: tuple[Replica, Replica], network: Network) -> None:
    first, _ = pair
    for replica in pair:
        status, answer = await replica.ask("POST", "/change", ANN)
        assert (status, "ann" in answer["error"]) == (403, True)
        assert (await replica.ask("GET", "/echo/a", BOB))[0] == 404, "that vhost is not in their scope"
        assert (await replica.ask("GET", "/echo/a", "wrong-token-of-somebody"))[0] == 401
    assert "done" not in first.context.extras
    assert network.sent == [], "what is refused here is not handed on"


async def test_however_many_wrong_tokens_come_from_an_address_a_right_one_is_let_in(
    pair: tuple[Replica, Replica],
) -> None:
    for replica in pair:
        tries = {(await replica.ask("GET", "/echo/a", "wrong-token-of-somebody"))[0] for _ in range(150)}
        assert tries == {401}
        assert (await replica.ask("GET", "/echo/a"))[0] == 200


async def test_a_caller_that_asks_too_often_is_refused_for_a_second(pair: tuple[Replica, Replica]) -> None:
    replica, _ = pair
    replica.context.per_second = 0.001
    answers = [await replica.ask("GET", "/echo/a") for _ in range(replica.context.burst + 1)]
    assert [status for status, _ in answers] == [200] * replica.context.burst + [429]
    assert answers[-1][1]["error"] == "too many requests"
    assert (await replica.ask("GET", "/echo/a", ANN))[0] == 200, "others have requests of their own"
    replica.context.per_second = 1e9
    assert (await replica.ask("GET", "/echo/a"))[0] == 200


async def test_no_token_and_no_header_of_a_person_is_handed_on(pair: tuple[Replica, Replica], network: Network) -> None:
    _, second = pair
    secret = {"cookie": "session=secret", "x-forwarded-for": "10.9.9.9", "dlx-router-mac": "smuggled", "te": "secret"}
    status, answer = await second.ask("POST", "/echo/a", headers={**secret, "content-type": "a/b"}, content=b"\x00\xff")
    assert (status, answer["body"]) == (200, "00ff")
    assert {*answer["headers"]} == {"content-type", "content-length"}
    (sent,) = network.sent
    text = repr(sent.headers.raw) + repr(sent.content) + str(sent.url)
    head = urlsafe_b64decode(sent.headers[envelope.HEAD]).decode()
    for word in (OLGA, "secret", "10.9.9.9", "smuggled", "Bearer", KEY.decode(), KEY.hex()):
        assert word not in text + head


@pytest.mark.parametrize(
    "target",
    [
        "/echo/a%2Fb%20c?x=%00&y=%0d%0aevil:%201&vhost=%2F",
        "/echo/%F0%9F%90%87?q=%FF%FE",
        "/echo/..%2f..%2fadmin?x=1#fragment",
        "/echo/a;b=c?&&&=&x",
        "/echo/'\"<>?x={}|^`",
    ],
)
async def test_an_address_arrives_as_it_came(pair: tuple[Replica, Replica], target: str) -> None:
    first, second = pair
    here, there = await first.ask("GET", target), await second.ask("GET", target)
    assert here[0] == 200
    assert (here[1]["path"], here[1]["query"]) == (there[1]["path"], there[1]["query"])


async def test_whoever_shows_no_token_is_nobody_where_tokens_are_asked_for(network: Network, tmp_path: Path) -> None:
    """A replica on loopback takes everybody on its machine for an admin: another one does not."""
    first, second = (
        Replica(network, tmp_path, "first", ("/",)),
        Replica(network, tmp_path, "second", ("/",), tokens=False),
    )
    first.lead("/", second)
    status, answer = await second.ask("GET", "/echo/a")
    assert status == 503
    assert "same key" in answer["error"]
    open_, other = (Replica(network, tmp_path, name, ("/",), tokens=False) for name in ("open", "other"))
    open_.lead("/", other)
    status, answer = await other.ask("GET", "/echo/a")
    assert (status, answer["who"], answer["role"]) == (200, "local", "ADMIN")


# -- somebody else --------------------------------------------------------------------------------------------------


def sealed(to: str, key: bytes = KEY, at_ms: int | None = None, **how: Any) -> tuple[dict[str, str], bytes]:
    request = Handed("POST", "/api/v1/change", how.get("who", WHO), "", b"")
    now_ms = wall_ms() if at_ms is None else at_ms
    return envelope.seal(key, request, to=to, now_ms=now_ms, nonce=secrets.token_hex(16)), b""


async def hand(replica: Replica, headers: dict[str, str], body: bytes = b"", method: str = "POST") -> httpx.Response:
    transport = httpx.ASGITransport(replica.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://first:9719") as client:
        return await client.request(method, envelope.PATH, headers=headers, content=body)


async def test_what_is_sealed_is_done_once_by_the_router_that_it_is_for(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    headers, body = sealed(first.id)
    assert (await hand(second, headers, body)).status_code == 401, "it is for another router"
    assert (await hand(first, headers, body)).status_code == 200
    again = await hand(first, headers, body)
    assert (again.status_code, "sent before" in again.text) == (401, True)
    old, _ = sealed(first.id, at_ms=wall_ms() - envelope.LASTS_MS - 1000)
    late = await hand(first, old)
    assert (late.status_code, "clocks" in late.text) == (401, True)
    assert first.context.extras["done"] == ["olga"]


FORGED: Final = {
    "another role": lambda head: head["who"].update(role="admin"),
    "another name": lambda head: head["who"].update(name="root"),
    "another vhost": lambda head: head["who"].update(vhost=None, match=None, name="x"),
    "another method": lambda head: head.update(method="DELETE"),
    "another target": lambda head: head.update(target="/api/v1/tasks"),
    "another router": lambda head: head.update(to="second-abc123"),
    "another time": lambda head: head.update(at_ms=head["at_ms"] + 1),
    "another number": lambda head: head.update(nonce="0" * 32),
    "another body": lambda head: head.update(body="0" * 64),
    "something more": lambda head: head.update(admin=True),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
async def test_nothing_of_a_request_can_be_changed_on_its_way(pair: tuple[Replica, Replica], change: Any) -> None:
    first, _ = pair
    headers, body = sealed(first.id)
    head = json.loads(urlsafe_b64decode(headers[envelope.HEAD]))
    change(head)
    forged = {**headers, envelope.HEAD: urlsafe_b64encode(json.dumps(head).encode()).decode()}
    assert (await hand(first, forged, body)).status_code == 401
    assert (await hand(first, headers, b"another body")).status_code == 401
    assert "done" not in first.context.extras


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {envelope.HEAD: "e30=", envelope.MAC: ""},
        {envelope.HEAD: "\xff", envelope.MAC: "\xff" * 64},
        {envelope.HEAD: "W" * 9000, envelope.MAC: "0" * 64},
        sealed("first-abc123", b"x" * 32)[0],
        {"authorization": f"Bearer {OLGA}"},
    ],
)
async def test_whoever_has_no_key_is_refused_before_a_body_is_read(
    pair: tuple[Replica, Replica], headers: dict[str, Any]
) -> None:
    first, _ = pair
    read = []

    async def receive() -> Any:
        read.append(1)
        return {"type": "http.request", "body": b"x", "more_body": True}

    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": envelope.PATH, "headers": raw}
    await first.app(scope, receive, send)
    assert (sent[0]["status"], read) == (401, [])


async def test_a_router_without_a_shared_key_takes_nothing_and_hands_nothing_on(
    network: Network, tmp_path: Path
) -> None:
    first, second = (Replica(network, tmp_path, name, ("/",), key=b"") for name in ("first", "second"))
    first.lead("/", second)
    status, answer = await second.ask("GET", "/echo/a")
    assert (status, "does not lead" in answer["error"], network.sent) == (503, True, [])
    assert (await hand(first, sealed(first.id, b"\0" * 32)[0])).status_code == 401


@pytest.mark.parametrize("role", ["", "root", "ADMIN ", None, 3])
def test_a_role_that_there_is_not_is_none(role: Any) -> None:
    headers = envelope.seal(KEY, Handed("GET", "/api/v1/x", WHO), to="a", now_ms=1, nonce="n")
    head = json.loads(urlsafe_b64decode(headers[envelope.HEAD]))
    head["who"]["role"] = role
    data = urlsafe_b64encode(json.dumps(head).encode())
    mac = envelope._mac(KEY, envelope._ASKED, data)
    with pytest.raises(envelope.Unsealed):
        envelope.unseal([KEY], data.decode(), mac, to="a", now_ms=1, seen=envelope.Seen(), is_open=False)


@pytest.mark.parametrize(
    "target", ["/api/forwarded", "/metrics", "http://evil/api/v1/x", "/api/v1/x\r\ny", "/api/v1/x#y"]
)
def test_only_paths_of_the_api_are_handed_on(target: str) -> None:
    headers = envelope.seal(KEY, Handed("GET", target, WHO), to="a", now_ms=1, nonce="n")
    with pytest.raises(envelope.Unsealed):
        envelope.unseal(
            [KEY], headers[envelope.HEAD], headers[envelope.MAC], to="a", now_ms=1, seen=envelope.Seen(), is_open=True
        )


# -- somebody else answers ------------------------------------------------------------------------------------------


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def impostor(status: int, **headers: str) -> Any:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, content=in_pieces(b'{"error":"<b>forged</b>","by":"evil"}'))

    return answer


@pytest.mark.parametrize(
    "spoil", [impostor(200), impostor(401), impostor(503), impostor(302, location="http://169.254.169.254/")]
)
async def test_what_answers_without_the_key_is_shown_to_nobody(
    pair: tuple[Replica, Replica], network: Network, spoil: Any
) -> None:
    _, second = pair
    network.spoil = spoil
    status, answer = await second.ask("GET", "/echo/a")
    assert (status, "forged" in answer["error"], "same key" in answer["error"]) == (503, False, True)
    assert {request.url.host for request in network.sent} == {"first"}, "no redirect is followed"
    assert all(OLGA not in repr(request.headers.raw) for request in network.sent)


async def test_an_answer_belongs_to_one_request(pair: tuple[Replica, Replica], network: Network) -> None:
    first, second = pair
    kept: list[httpx.Response] = []
    transport = httpx.ASGITransport(first.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://first") as client:
        headers, _ = sealed(first.id)
        kept.append(await client.post(envelope.PATH, headers=headers))
    answer = kept[0]
    network.spoil = lambda _request: httpx.Response(
        200, headers=dict(answer.headers), content=in_pieces(answer.content)
    )
    assert (await second.ask("GET", "/echo/a"))[0] == 503
    network.spoil = lambda _request: None
    assert (await second.ask("GET", "/echo/a"))[0] == 200


# -- nobody leads, or two say that they do not ------------------------------------------------------------------------


async def test_two_that_take_each_other_for_the_leader_send_it_once_each_time_and_say_so(
    pair: tuple[Replica, Replica], network: Network
) -> None:
    first, second = pair
    second.vhosts["/"].leadership, first.vhosts["/"].leadership = (
        Leading(leader=first.claim),
        Leading(leader=second.claim),
    )
    status, answer = await second.ask("POST", "/change")
    assert (status, "does not lead vhost '/' any more" in answer["error"]) == (503, True)
    assert {request.url.host for request in network.sent} == {"first"}, "what was handed over is not handed on"
    assert 1 <= len(network.sent) <= 6


async def test_a_takeover_is_waited_for(
    pair: tuple[Replica, Replica], network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_proxy, "WAIT_S", 10.0)
    first, second = pair
    del network.apps["first"]

    async def take_over() -> None:
        await soon(lambda: len(network.sent) > 1)
        second.lead("/", first)

    answer, _ = await asyncio.gather(second.ask("POST", "/change"), take_over())
    assert answer == (200, {"by": second.id})
    assert second.context.extras["done"] == ["olga"]


async def test_a_change_that_may_have_been_done_is_sent_once(pair: tuple[Replica, Replica], network: Network) -> None:
    first, second = pair

    def hang_up(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone")

    network.spoil = hang_up
    status, answer = await second.ask("POST", "/change")
    assert (status, "may have been done" in answer["error"], len(network.sent)) == (503, True, 1)
    network.sent.clear()
    assert (await second.ask("GET", "/echo/a"))[0] == 503
    assert len(network.sent) > 1, "a question is asked again"
    assert "done" not in first.context.extras


async def test_while_nobody_leads_the_answer_says_so_and_for_how_long(pair: tuple[Replica, Replica]) -> None:
    _, second = pair
    second.vhosts["/"].leadership = Leading(leaderless_s=12.3)
    status, answer = await second.ask("GET", "/echo/a")
    assert (status, answer["error"]) == (503, "this router does not lead vhost '/'")
    _, answer = await second.ask("GET", "/status")
    assert answer["vhosts"]["/"] == {
        "leads": False,
        "term": None,
        "leader": None,
        "leaderless_ms": 12300,
        "journal": "best-effort",
    }
    assert answer["vhosts"]["b"]["leader"] == "first-abc123"


@pytest.mark.parametrize("token", [OLGA, BOB])
async def test_a_vhost_that_is_left_while_its_leader_is_asked_is_served_no_more(
    pair: tuple[Replica, Replica], network: Network, token: str
) -> None:
    """Whoever asked for it meanwhile was answered 500."""
    _, second = pair

    def leave(_request: httpx.Request) -> None:
        second.vhosts.pop("b", None)
        raise httpx.ConnectError("it goes with the vhost")

    network.spoil = leave
    status, answer = await second.ask("GET", "/echo/a?vhost=b", token)
    assert (status, "not served here" in answer["error"]) == (404, True)


async def test_a_vhost_that_was_left_has_no_policies_behind_its_queues(pair: tuple[Replica, Replica]) -> None:
    first, _ = pair
    assert policies._contributing(first.context, [("gone", "orders")]) == set()


async def test_an_address_of_the_leaders_own_machine_is_not_asked(
    pair: tuple[Replica, Replica], network: Network
) -> None:
    _, second = pair
    second.vhosts["/"].leadership = Leading(leader=Claim("elsewhere-1", "http://127.0.0.1:9719"))
    status, answer = await second.ask("GET", "/echo/a")
    assert (status, "its own machine only" in answer["error"], network.sent) == (503, True, [])
    second.vhosts["/"].leadership = Leading(leader=Claim("second-ffffff", "http://127.0.0.1:9719"))
    await second.ask("GET", "/echo/a")
    assert {request.url.host for request in network.sent} == {"127.0.0.1"}


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254:80",
        "http://user:x@first:9719",
        "http://first:9719/x",
        "file:///etc/passwd",
        "http://[fe80::1]",
    ],
)
async def test_a_claim_leads_to_no_address_that_is_no_routers(
    pair: tuple[Replica, Replica], network: Network, url: str
) -> None:
    _, second = pair
    second.vhosts["/"].leadership = Leading(leader=Claim("first-abc123", url))
    assert (await second.ask("GET", "/echo/a"))[0] == 503
    assert network.sent == []


# -- what is to wait ---------------------------------------------------------------------------------------------------


async def test_what_is_to_wait_is_waited_for_and_keeps_nobody_else_out(
    pair: tuple[Replica, Replica], network: Network
) -> None:
    first, second = pair
    first.context.extras["news"] = news = asyncio.Event()
    for replica in pair:
        replica.context.at_once = 1
    waiting = []
    for number in range(2):
        waiting.append(asyncio.create_task(second.ask("POST", "/patient", params={"wait": "15"})))
        await soon(lambda number=number: first.context.extras.get("waiting") == number + 1)  # type: ignore[misc]  # a default binds it
    assert (await second.ask("GET", "/echo/a"))[0] == 200, "both are as good as idle"
    news.set()
    assert await asyncio.gather(*waiting) == [(200, {"by": first.id, "is_gone": False})] * 2
    timeout = network.sent[0].extensions["timeout"]
    assert (timeout["read"], timeout["connect"]) == (leader_proxy.ANSWER_S + 15, leader_proxy.CONNECT_S)


async def test_letters_as_they_lie_are_as_large_as_the_broker_takes_them(pair: tuple[Replica, Replica]) -> None:
    """A letter of 6 MiB could be received and exported by the leader only, and was leased to nobody meanwhile."""
    status, answer = await pair[1].ask("GET", "/letters-as-they-lie")
    assert (status, len(answer["body"])) == (200, PLAIN.most_bytes + 1)


async def test_who_hangs_up_is_waited_for_no_longer(pair: tuple[Replica, Replica], network: Network) -> None:
    _, second = pair
    asking = asyncio.Event()
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asking.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        raise AssertionError("nobody is there")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/api/v1/patient",
        "raw_path": b"/api/v1/patient",
        "query_string": b"wait=15",
        "headers": [(b"authorization", f"Bearer {OLGA}".encode()), (b"host", b"127.0.0.1")],
    }
    request: asyncio.Task[None] = asyncio.create_task(second.app(scope, receive, send))  # type: ignore[arg-type]  # an ASGI app, given a scope of ours
    await soon(lambda: len(network.sent) == 1)
    asking.set()
    async with asyncio.timeout(12):
        await request


# -- every path -------------------------------------------------------------------------------------------------------

LED: Final = ("/tasks", "/edits", "/leases", "/receive", "/queues/import")
BODIES: Final = {
    "/api/v1/tasks": {"queue": "q"},
    "/api/v1/edits": {"queue": "q", "id": "a", "text": "x"},
    "/api/v1/queues/import": {"queue": "q"},
    "/api/v1/groups/{group_id}": {"state": "open"},
    "/api/v1/letters/{letter_id}/comments": {"text": "x"},
    "/api/v1/queues/{queue}/receive": {},
    "/api/v1/leases/{handle}": {"action": "done"},
}
HANDLE: Final = handle_of(Claims("/", 1, "lease-1", "olga"), KEY)
ADMIN: Final = {"/api/v1/index/rebuild"}


async def test_only_tasks_leases_and_imports_are_asked_of_the_leader(
    pair: tuple[Replica, Replica], network: Network
) -> None:
    """All else is answered by each router, from its own index."""
    _, second = pair
    _, described = await second.ask("GET", "/openapi.json")
    seen = set()
    for path, methods in described["paths"].items():
        for method in methods:
            network.sent.clear()
            named = path.replace("{handle}", HANDLE)
            target = re.sub(r"\{\w+\}", "a", named).removeprefix("/api/v1")
            query = {"queue": "q"} if method == "get" and "tasks/preview" in path else {}
            token = OLGA
            status, answer = await second.ask(method.upper(), target, token, params=query, json=BODIES.get(path))
            if path in ADMIN:
                assert status == 403
                continue
            is_led = any(part in path for part in LED)
            seen.add(is_led)
            assert bool(network.sent) == is_led, (method, path, status, answer)
    assert seen == {True, False}


def test_numbers_are_remembered_as_long_as_they_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MOST_SEEN", 3)
    seen = envelope.Seen()
    for number in range(3):
        seen.use(str(number), 1_000)
    for again in ("0", "3"):
        with pytest.raises(envelope.Unsealed):
            seen.use(again, 1_000)
    seen.use("0", 1_001 + 2 * envelope.LASTS_MS)


def test_secrets_are_in_no_repr() -> None:
    request = Handed("POST", "/api/v1/x", LOCAL, "a/b", b"secret body")
    opened = envelope.Opened(request, "d", "n", KEY)
    for item in (request, opened, Answered(200, "a/b", b"secret body")):
        assert "secret" not in repr(item)
        assert "kkkk" not in repr(item)


def test_a_long_address_is_refused_before_it_is_sent() -> None:
    with pytest.raises(envelope.TooLarge):
        envelope.seal(KEY, Handed("GET", "/api/v1/x?" + "a" * 12_000, WHO), to="a", now_ms=1, nonce="n")
    assert leader_proxy.ANSWER_S < 10, "the port's connections end after 10 s"
