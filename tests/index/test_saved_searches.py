"""Saved searches over the API: who may, how many, how large; they outlive the router, its index and its leader."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dlx_router.core.saved_searches import ACTIONS, MAX_BYTES, MOST, left
from dlx_router.core.signature import Signature
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_reader, open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from tests.index.conftest import POLICIES, Desk
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
LATE: Final = {"q": "timeout", "queue": "orders.new", "state": "dead", "since_ms": 1_769_860_800_000}


def late(vhost: str, name: str = "Late orders", **wanted: Any) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "page": "letters", "filter": wanted or LATE}


def ask(router: Router, path: str, method: str = "GET", token: str = OLGA, **how: Any) -> tuple[int, Any]:
    url, headers = f"http://127.0.0.1:{router.port}/api/v1{path}", {"authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(method, url, headers=headers, timeout=60, trust_env=False, verify=NO_TLS, **how)
    except httpx.TransportError as error:
        return 0, repr(error)
    return answer.status_code, answer.json()


def names(router: Router, token: str = OLGA) -> list[str]:
    status, answer = ask(router, "/searches", token=token)
    assert status == 200, answer
    assert not answer.get("missing")
    return [search["name"] for search in answer["searches"]]


@pytest.mark.usefixtures("newest")
def test_a_search_is_saved_listed_and_deleted_and_the_audit_says_by_whom(desk: Desk) -> None:
    vhost = desk.vhost.name
    eventually(lambda: desk.ask("GET", "/searches")[0] == 200, 20)  # its router leads, and its index is open
    status, made = desk.ask("POST", "/searches", json=late(vhost, "  Late orders "))
    assert (status, made["name"], made["filter"], made["by"]) == (201, "Late orders", LATE, "local")
    assert desk.get("/searches")[1]["searches"] == [made]
    status, answer = desk.ask("POST", "/searches", json=late(vhost, q="another"))
    assert (status, "'local' has saved a search of letters as 'Late orders'" in answer["error"]) == (409, True)
    status, groups = desk.ask("POST", "/searches", json={**late(vhost), "page": "groups", "filter": {"state": "open"}})
    assert status == 201, groups
    assert [search["page"] for search in desk.get("/searches")[1]["searches"]] == ["groups", "letters"]
    assert desk.get("/searches", page="groups")[1]["searches"] == [groups]
    assert desk.ask("DELETE", f"/searches/{made['id']}")[0] == 404, "of the vhost / that is not served"
    for search in (made, groups):
        assert desk.ask("DELETE", f"/searches/{search['id']}", params={"vhost": vhost}) == (200, search)
    assert desk.get("/searches")[1]["searches"] == []
    assert desk.ask("DELETE", f"/searches/{made['id']}", params={"vhost": vhost})[0] == 404
    assert desk.ask("POST", "/searches", json=late(vhost))[0] == 201, "and once more by its name"
    assert desk.ask("DELETE", f"/searches/{made['id']}", params={"vhost": vhost})[0] == 200
    did = [(entry["action"], entry["actor"]) for entry in desk.get("/audits")[1]["audits"]]
    assert did.count(("search.saved", "local")) == 3
    assert did.count(("search.deleted", "local")) == 3


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""}, {"name": " ! "}, {"name": "x" * 81}, {"page": "tasks"}, {"filter": {"queue": 7}},
        {"filter": {"nobody": "asks"}}, {"filter": {"since_ms": 0}}, {"filter": {"q": "%%"}}, {"filter": None},
        {"filter": {"state": "open"}}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_search_is_refused_and_says_where(desk: Desk, changed: dict[str, Any]) -> None:
    status, answer = desk.ask("POST", "/searches", json=late(desk.vhost.name) | changed)
    assert (status, bool(answer["error"])) == (422, True), answer
    eventually(lambda: desk.get("/searches")[0] == 200, 20)
    assert desk.get("/searches")[1]["searches"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_they_are_bounded_in_number_and_in_bytes(desk: Desk) -> None:
    vhost = desk.vhost.name
    large = late(vhost, "large", q="\u00e4" * 500)
    status, answer = desk.ask("POST", "/searches", json=large)
    assert (status, f"at most {MAX_BYTES}" in answer["error"]) == (409, True)
    made = []
    for number in range(MOST):
        status, created = desk.ask("POST", "/searches", json=late(vhost, f"s{number}"))
        assert status == 201, created
        made.append(created["id"])
    status, answer = desk.ask("POST", "/searches", json=late(vhost, "too many"))
    assert (status, f"has {MOST} saved searches" in answer["error"]) == (409, True)
    for search_id in made:
        assert desk.ask("DELETE", f"/searches/{search_id}", params={"vhost": vhost})[0] == 200


@pytest.fixture
def started(start_router: Callable[..., Router], tmp_path: Path) -> Callable[..., Router]:
    """`started(NAME)`: a replica with an index of its own."""
    (tmp_path / "key").write_text(secrets.token_hex(32), encoding="utf-8")
    (tmp_path / "tokens").write_text(TOKENS, encoding="utf-8")
    files = {"PROVENANCE_KEY_FILE": str(tmp_path / "key"), "API_TOKENS_FILE": str(tmp_path / "tokens")}
    return lambda name: start_router(POLICIES, INDEX_PATH=str(tmp_path / name), HEARTBEAT="2", **files)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_replicas_agree_and_a_router_that_takes_over_has_them(
    started: Callable[..., Router], vhost: Vhost, tmp_path: Path
) -> None:
    first = started("one")
    eventually(lambda: ask(first, "/letters")[0] == 200, 20)
    second = started("two")
    eventually(lambda: ask(second, "/letters")[0] == 200, 20)
    assert ask(second, "/searches", "POST", VIC, json=late(vhost.name))[0] == 403, "a viewer looks"
    status, answer = ask(second, "/searches", "POST", SID, json=late(vhost.name, "others", queue="mail"))
    assert (status, "sees some queues only" in answer["error"]) == (403, True)
    status, mine = ask(second, "/searches", "POST", json=late(vhost.name))
    assert (status, mine["by"]) == (201, "olga"), mine
    assert ask(first, "/searches", "POST", json=late(vhost.name, "mails", queue="mail"))[0] == 201
    for router in (first, second):
        assert names(router) == names(router, VIC) == ["Late orders", "mails"]
        assert names(router, SID) == ["Late orders"], "what names no queue of its scope is not for its eyes"
    other = next(search["id"] for search in ask(first, "/searches")[1]["searches"] if search["name"] == "mails")
    assert ask(second, f"/searches/{other}", "DELETE", SID, params={"vhost": vhost.name})[0] == 404
    assert ask(second, f"/searches/{mine['id']}", "DELETE", VIC, params={"vhost": vhost.name})[0] == 403
    first.kill()
    eventually(lambda: ask(second, "/searches")[0] == 200 and names(second) == ["Late orders", "mails"], 40)
    second.stop()
    for file in tmp_path.glob("two*"):
        file.unlink()  # the pod's disk is gone too
    second.start(within=40)
    eventually(lambda: ask(second, "/searches")[0] == 200 and names(second) == ["Late orders", "mails"], 40)
    assert ask(second, f"/searches/{other}", "DELETE", params={"vhost": vhost.name})[0] == 200
    assert names(second) == ["Late orders"]


# -- the index by itself ----------------------------------------------------------------------------------------------


def saved(number: int) -> bytes:
    search = {"name": f"s{number}", "page": "letters", "filter": {}, "by": "ann", "saved_ms": 1 + number}
    return audit("r", "/", actor="ann", action="search.saved", details={"search": search}, ts_ms=1 + number)


def test_what_no_router_is_known_to_have_written_is_no_search(store: Store, file: Path) -> None:
    signed = [Signature.OK, Signature.NONE, Signature.UNKNOWN, Signature.BAD]
    store.apply("/", [Message(number, saved(number), signature) for number, signature in enumerate(signed)])
    kept = left(Reader(file).audits_of("/", ACTIONS, 0))
    assert [search.name for search in kept.listed()] == ["s0"]
    assert left(Reader(file).audits_of("shop", ACTIONS, 0)).listed() == []


def test_they_are_found_among_many_audits_by_an_index_that_a_file_of_before_is_given(file: Path) -> None:
    before = open_writer(file, max_bytes=1 << 30)
    before.execute("DROP INDEX audits_what")
    before.close()
    open_writer(file, max_bytes=1 << 30).close()
    asked = open_reader(file)
    sql = "SELECT details FROM audits WHERE vhost = '/' AND ts_ms >= 0 AND signature = 'ok' AND action IN ('a', 'b')"
    ways = [row["detail"] for row in asked.execute(f"EXPLAIN QUERY PLAN {sql} ORDER BY ts_ms DESC LIMIT 9")]
    asked.close()
    assert any("audits_what" in way for way in ways), ways
