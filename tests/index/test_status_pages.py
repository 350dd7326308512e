"""Status pages over the API: who may share, how many, what a link tells, and that replicas and restarts agree."""

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
from fastapi import HTTPException

from dlx_router.admin.api import audited_state, public, searches, status_pages
from dlx_router.admin.api.context import Context
from dlx_router.admin.connections import DEADLINE_S
from dlx_router.broker.address import Host, Login
from dlx_router.config.api_access.tokens import LOCAL
from dlx_router.core.names import Names
from dlx_router.core.signature import Signature
from dlx_router.core.status_pages import ACTIONS, MAX_NOTE, MOST, digest_of, left
from dlx_router.index.hours import HOURS
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import audit
from dlx_router.journal.batch import Batch
from dlx_router.telemetry.readiness import Readiness
from tests.index.conftest import POLICIES, Desk
from tests.support.bulk import dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router
from tests.support.vhost import Vhost

OLGA, VIC, SID = "olga-" + "o" * 20, "vic-" + "v" * 20, "sid-" + "s" * 20
TOKENS: Final = f"""
tokens:
  - {{name: olga, token: {OLGA}, role: operator}}
  - {{name: vic, token: {VIC}, role: viewer}}
  - {{name: sid, token: {SID}, role: operator, match: "orders.#"}}
"""
SAYS: Final = {
    "queue", "reason", "error_type", "message", "state", "first_ms", "last_ms", "lying", "deaths", "hours", "is_part",
    "note", "made_ms",
}  # fmt: skip


def ask(router: Router, path: str, method: str = "GET", token: str = OLGA, **how: Any) -> tuple[int, Any]:
    url, headers = f"http://127.0.0.1:{router.port}/api/v1{path}", {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.request(method, url, headers=headers, timeout=60, trust_env=False, verify=NO_TLS, **how)
    except httpx.TransportError as error:
        return 0, repr(error)
    return answer.status_code, answer.json()


def page_of(group: str) -> str:
    return f"/groups/{group}/status-page"


def a_group(desk: Desk, queue: str) -> str:
    """Of one letter whose error and headers hold what is nobody's business."""
    desk.work(queue)
    declared = {"x-error-type": "TimeoutError", "x-error-message": "order 17 timed out", "secret-header": "s3cret"}
    desk.kill(queue, "s3cret body", headers=declared)
    desk.letters(1, queue=queue)
    group: str = desk.groups(queue)[0]["id"]
    return group


@pytest.mark.usefixtures("newest")
def test_a_page_says_what_is_so_and_no_word_more(desk: Desk) -> None:
    group = a_group(desk, "pub.orders")
    path = page_of(group)
    assert desk.get(path)[1]["is_shared"] is False
    status, made = desk.ask("POST", path, json={"note": " We know. "})
    assert (status, made["is_shared"], made["by"], made["url"]) == (201, True, "local", f"/status/{made['token']}")
    assert len(made["token"]) == 43
    shown = desk.get(path)[1]
    assert shown == {name: value for name, value in made.items() if name not in {"token", "path", "url"}}
    assert group in [page["group"] for page in desk.get("/status-pages")[1]["pages"]]
    status, told = desk.get(f"/status/{made['token']}")
    assert (status, {*told}) == (200, SAYS)
    assert (told["queue"], told["reason"], told["state"], told["note"]) == (
        "pub.orders",
        "rejected",
        "open",
        "We know.",
    )
    assert (told["lying"], told["deaths"], told["error_type"], told["message"]) == (1, 1, None, None)
    assert (len(told["hours"]), sum(told["hours"]), told["is_part"]) == (HOURS, 1, False)
    assert told["first_ms"] <= told["last_ms"] <= told["made_ms"]
    assert "s3cret" not in str(told)
    assert desk.ask("PATCH", f"/groups/{group}", json={"state": "resolved"})[0] == 200
    eventually(lambda: desk.get(f"/status/{made['token']}")[1]["state"] == "resolved", 15)


@pytest.mark.usefixtures("newest")
def test_a_link_is_told_once_revoked_at_once_and_another_one_made(desk: Desk) -> None:
    path = page_of(a_group(desk, "pub.again"))
    made = desk.ask("POST", path, json={})[1]
    status, answer = desk.ask("POST", path, json={})
    assert (status, "'local' has shared a page of group" in answer["error"]) == (409, True)
    assert desk.get(f"/status/{made['token']}")[0] == 200
    assert desk.ask("DELETE", path)[0] == 200
    assert desk.get(f"/status/{made['token']}") == (404, {"error": public.NOTHING, "problems": []})
    assert (desk.ask("DELETE", path)[0], desk.get(path)[1]["is_shared"]) == (404, False)
    again = desk.ask("POST", path, json={"shows_error": True})[1]
    assert again["token"] != made["token"]
    told = desk.get(f"/status/{again['token']}")[1]
    assert (told["error_type"], "17" in told["message"], "timed out" in told["message"]) == (
        "TimeoutError",
        False,
        True,
    )
    audits = desk.get("/audits")[1]["audits"]
    did = [entry["action"] for entry in audits if entry["details"].get("page", {}).get("queue") == "pub.again"]
    assert did == ["page.shared", "page.revoked", "page.shared"]
    for token in (made["token"], again["token"]):
        assert token not in str(audits)
        assert token not in desk.router.output


@pytest.mark.usefixtures("newest")
def test_what_cannot_be_shared_so_is_refused(desk: Desk) -> None:
    desk.work("pub.odd")
    desk.kill("pub.odd", "a")
    desk.letters(1, queue="pub.odd")
    path = page_of(desk.groups("pub.odd")[0]["id"])
    several: list[Any] = [
        {"note": "x" * (MAX_NOTE + 1)},
        {"note": 7},
        {"shows_error": "perhaps"},
        {"shows_error": 0},
        {"more": 1},
        None,
        [],
    ]
    for wanted in several:
        assert desk.ask("POST", path, json=wanted)[0] == 422, wanted
    assert desk.get(path)[1]["is_shared"] is False
    assert desk.ask("POST", page_of("g1-nobody"), json={})[0] == 404
    assert desk.get(page_of("g1-nobody"))[0] == 404
    assert desk.get(page_of("x" * 65))[0] == 422


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_at_most_so_many_groups_of_a_vhost_are_shared(desk: Desk) -> None:
    queues = [f"many.q{number}" for number in range(MOST + 1)]
    for queue in queues:
        desk.work(queue)
        desk.kill(queue, "a")
    status, answer = 0, dict[str, Any]()

    def groups() -> list[str]:
        rows = [row for row in desk.get("/groups", limit=500)[1]["groups"] if row["failed_queue"].startswith("many.")]
        return [row["id"] for row in rows] if len(rows) == len(queues) else []

    shared = eventually(groups, 40)
    made = []
    for group in shared:
        status, answer = desk.ask("POST", page_of(group), json={})
        made += [group] if status == 201 else []
    assert (status, f"has {MOST} status pages" in answer["error"]) == (409, True)
    for group in made:
        assert desk.ask("DELETE", page_of(group))[0] == 200


@pytest.fixture
def started(start_router: Callable[..., Router], tmp_path: Path) -> Callable[..., Router]:
    """`started(NAME)`: a replica with an index of its own."""
    (tmp_path / "key").write_text(secrets.token_hex(32), encoding="utf-8")
    (tmp_path / "tokens").write_text(TOKENS, encoding="utf-8")
    files = {"PROVENANCE_KEY_FILE": str(tmp_path / "key"), "API_TOKENS_FILE": str(tmp_path / "tokens")}
    return lambda name: start_router(POLICIES, INDEX_PATH=str(tmp_path / name), HEARTBEAT="2", **files)


@pytest.fixture
def pair(started: Callable[..., Router], amqp: Client) -> tuple[Router, Router, str, str]:
    """Two replicas, the first one leads; and the pages of a group of orders.new and of one of mail."""
    first = started("one")
    eventually(lambda: ask(first, "/letters")[0] == 200, 20)
    second = started("two")
    eventually(lambda: ask(second, "/letters")[0] == 200, 20)
    for queue in ("orders.new", "mail"):
        pour(amqp, dying_queue(amqp, queue), ["a"])
    eventually(lambda: len(ask(second, "/groups")[1].get("groups", ())) == 2, 20)  # it has an index of its own
    eventually(lambda: len(ask(first, "/groups")[1]["groups"]) == 2, 20)
    of = {row["failed_queue"]: page_of(row["id"]) for row in ask(first, "/groups")[1]["groups"]}
    return first, second, of["orders.new"], of["mail"]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_who_may_share_what_and_that_any_replica_answers_anybody(pair: tuple[Router, Router, str, str]) -> None:
    first, second, orders, mail = pair
    assert ask(second, orders, "POST", VIC, json={})[0] == 403, "a viewer looks"
    assert ask(second, mail, "POST", SID, json={})[0] == 404, "another's queue is not there for a token of some"
    assert ask(second, orders, "POST", "", json={})[0] == 401
    status, mine = ask(second, orders, "POST", SID, json={"note": "at it"})
    assert (status, mine["by"]) == (201, "sid"), mine
    status, other = ask(first, mail, "POST", json={})
    assert status == 201, other
    for router in (first, second):
        for token in ("", "wrong-token-of-somebody", OLGA):
            status, told = ask(router, f"/status/{mine['token']}", token=token)
            assert (status, told.get("queue")) == (200, "orders.new"), told
        assert ask(router, f"/status/{'x' * 43}", token="")[0] == 404
        assert ask(router, f"/status/{'x' * 42}", token="")[0] == 401, "no link of ours, so a token is asked for"
        assert len(ask(router, "/status-pages", token=VIC)[1]["pages"]) == 2
        assert [page["queue"] for page in ask(router, "/status-pages", token=SID)[1]["pages"]] == ["orders.new"]
        assert ask(router, "/groups", token="")[0] == 401
    assert ask(second, mail, "DELETE", SID)[0] == 404
    assert ask(second, mail, "DELETE", VIC)[0] == 403
    assert ask(second, mail, "DELETE")[0] == 200
    assert ask(first, f"/status/{other['token']}", token="")[0] == 404


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("framing", ["Content-Length: 9", "Transfer-Encoding: chunked"])
def test_a_body_that_never_comes_keeps_nobody_from_a_status_page(
    pair: tuple[Router, Router, str, str], framing: str
) -> None:
    """Who leads nothing read it before it asked the leader: four strangers kept all others out, for 10 s each time."""
    _, second, orders, _ = pair
    token = ask(second, orders, "POST", json={})[1]["token"]
    head = f"GET /api/v1/status/{token} HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n\r\n".encode()
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        for _ in range(3 * public.AT_ONCE):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", second.port), timeout=10))
            stranger.sendall(head)
            assert ask(second, f"/status/{token}", token="")[0] == 200
            assert stranger.recv(12) == b"HTTP/1.1 200", "what a GET says of a body is of no use to anybody"
    assert time.monotonic() - began < DEADLINE_S, "nobody was waited for"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_router_that_takes_over_knows_the_links_and_tells_strangers_nothing(
    pair: tuple[Router, Router, str, str], vhost: Vhost, tmp_path: Path
) -> None:
    first, second, orders, mail = pair
    link, gone = [f"/status/{ask(second, path, 'POST', json={})[1]['token']}" for path in (orders, mail)]
    assert ask(second, mail, "DELETE")[0] == 200
    first.kill()
    said: set[str] = set()

    def taken_over() -> bool:
        status, told = ask(second, link, token="")
        assert status in {200, 503}, told
        said.add("" if status == 200 else told["error"])
        return status == 200

    eventually(taken_over, 40)
    assert said <= {"", public.LATER}, "whose vhost it is and who leads it is nothing for strangers"
    second.stop()
    for file in tmp_path.glob("two*"):
        file.unlink()  # the pod's disk is gone too
    second.start(within=40)

    def read_again() -> bool:
        statuses = [ask(second, path, token="")[0] for path in (gone, link)]
        assert statuses[0] in {404, 503}, "revoked, and the index has not read so far"
        return statuses == [404, 200]

    eventually(read_again, 40)
    assert vhost.name not in str(ask(second, link, token="")[1])


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_flood_of_guesses_keeps_nobody_with_a_token_out(started: Callable[..., Router]) -> None:
    router = started("one")
    eventually(lambda: ask(router, f"/status/{secrets.token_urlsafe(32)}", token="")[0] == 404, 20)
    seen = {ask(router, f"/status/{secrets.token_urlsafe(32)}", token="")[0] for _ in range(150)}
    assert seen <= {404, 429}
    assert ask(router, "/letters")[0] == 200


# -- the index by itself ----------------------------------------------------------------------------------------------


def shared(number: int) -> bytes:
    page: dict[str, Any] = {
        "digest": digest_of(str(number)),
        "group": f"g{number}",
        "queue": "q",
        "reason": "rejected",
        "note": "",
    }
    page |= {"shows_error": False, "by": "ann", "shared_ms": 1 + number}
    return audit("r", "/", actor="ann", action="page.shared", details={"page": page}, ts_ms=1 + number)


def test_a_page_that_no_router_is_known_to_have_shared_is_none(store: Store, file: Path) -> None:
    signed = [Signature.OK, Signature.NONE, Signature.UNKNOWN, Signature.BAD]
    store.apply("/", [Message(number, shared(number), signature) for number, signature in enumerate(signed)])
    known = left(Reader(file).audits_of("/", ACTIONS, 0))
    assert [page.group for page in known.listed()] == ["g0"]
    assert left(Reader(file).audits_of("shop", ACTIONS, 0)).listed() == []


def test_a_revoked_page_shows_nothing_however_far_the_index_is_behind(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, shared(0), Signature.OK)])
    index = Supervisor(file, "dlx-router.journal", lambda _vhost: ((), Login("", ""), None), Readiness())
    given, digest = Context("r", Names("dlx-router"), {}, index), digest_of("0")

    async def statuses() -> list[bool]:
        before = await public.status(given, "/", digest) is not None
        public.revoke(given, digest)
        return [before, await public.status(given, "/", digest) is not None]

    assert asyncio.run(statuses()) == [True, False]


class Leader:
    """A vhost that this router leads; what is written comes into its index at once."""

    def __init__(self, store: Store) -> None:
        self.vhost, self.journal, self.leadership = "/", self, SimpleNamespace(is_ours=True)
        self.is_on = self.is_working = True
        self._store, self._offset = store, 100

    def record(self, line: bytes) -> Batch:
        self._store.apply("/", [Message(self._offset, line, Signature.OK)])
        self._offset += 1
        batch = Batch(1)
        batch.confirm()
        return batch


async def test_nothing_is_revoked_shared_or_deleted_before_the_index_knows_all_that_there_is(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoked while an index was made anew was "no such page", and the link worked again a little later."""
    monkeypatch.setattr(audited_state, "CAUGHT_UP_S", 0.1)
    hosts = [Host("127.0.0.1", 1)]
    index = Supervisor(file, "dlx-router.journal", lambda _vhost: (hosts, Login("", ""), None), Readiness())
    leader: Any = Leader(store)
    given = Context("r", Names("dlx-router"), {"/": leader}, index)
    index.lead("/", ours=True)

    def changes() -> list[Coroutine[Any, Any, Any]]:
        return [
            status_pages.revoke(given, LOCAL, "g0"),
            status_pages.share(given, LOCAL, "g0", status_pages.NewStatusPage(note="")),
            searches.delete(given, LOCAL, "s0", "/"),
            searches.save(given, LOCAL, searches.SaveLetters(**a_search())),
        ]

    async def refusals() -> list[tuple[int, Any]]:
        found = []
        for change in changes():
            with pytest.raises(HTTPException) as refused:
                await change
            found.append((refused.value.status_code, (refused.value.headers or {}).get("retry-after")))
        return found

    index.status = {"vhosts": {"/": {"has_caught_up": False}}}
    assert await refusals() == [(503, "2")] * 4
    store.apply("/", [Message(0, shared(0), Signature.OK)])
    assert (await refusals())[0] == (503, "2"), "it may have been shared again since"
    index.status = {"vhosts": {"/": {"has_caught_up": True}}}
    answer = await status_pages.revoke(given, LOCAL, "g0")
    assert (answer.status_code, await public.status(given, "/", digest_of("0"))) == (200, None)
    with pytest.raises(HTTPException, match="404"):
        await status_pages.revoke(given, LOCAL, "g0")
    assert (await searches.save(given, LOCAL, searches.SaveLetters(**a_search()))).status_code == 201


def a_search() -> dict[str, Any]:
    return {"name": "Late", "page": "letters", "filter": {"queue": "q"}}


def test_deaths_of_a_group_that_is_not_known_are_none(store: Store, file: Path) -> None:
    assert store is not None
    course = Reader(file).deaths_by_hour("g1-nobody", 1_800_000_000_000)
    assert (course.hours, course.is_part) == ([0] * HOURS, False)
