"""The status page of a group: what anybody with the link sees, what nobody sees, and who may share one."""

import asyncio
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Final

import httpx
import pytest

from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.console.app import create_app
from dlx_router.console.pages import status_pages
from dlx_router.console.router_api import RouterApi
from tests.console.conftest import POLICIES, TOKENS, Desk
from tests.console.liar import LINK, TOKEN, Liar, browser, console, csrf, logged_in
from tests.console.test_pages import OURS
from tests.console.test_rendering import HOSTILE, Read
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router

ODD: Final = (
    "", "x", "a" * 42, "a" * 44, f"{LINK}/", f"{LINK}%2F..", f"..%2F..%2Fgroups%2F{LINK}", "%00" * 43, "%ff" * 43,
    "\u00e4" * 43, "<script>" * 5 + "abc", f"{LINK[:-1]}%0a", "*" * 43, "' OR 1=1 --".ljust(43, "x"), "a" * 9000,
)  # fmt: skip


def public(answer: httpx.Response) -> Read:
    """The page says to nobody where it came from, is found by no search, and leads nowhere."""
    assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-robots-tag"] == "noindex, nofollow"
    assert (answer.headers["x-content-type-options"], answer.headers["x-frame-options"]) == ("nosniff", "DENY")
    assert "set-cookie" not in answer.headers
    read = Read(answer.text)
    assert {tag for tag, _ in read.elements} <= OURS - {"a", "form", "input", "nav", "script", "button", "footer"}
    for tag, attrs in read.elements:
        assert not any(name.startswith("on") or name in {"style", "src", "action"} for name in attrs), (tag, attrs)
        assert "href" not in attrs or str(attrs["href"]).startswith("/static/"), (tag, attrs)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0e-\x1f\x7f]", answer.text)
    return read


async def test_whoever_has_the_link_reads_it_without_logging_in() -> None:
    async with browser(console(Liar("plain"))) as client:
        answer = await client.get(f"/status/{LINK}")
        read = public(answer)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=5")
        assert (await client.head(f"/status/{LINK}")).status_code == 200
        assert (await client.post(f"/status/{LINK}", data={})).status_code == 405
        assert (await client.get("/groups")).status_code == 303, "a link lets nobody in"
    assert "There now3Failures in all7" in read.text
    assert "7 of the newest messages, at most 7 in one" in read.text
    for word in ("g1-1", TOKEN, LINK, "/api/v1", "/groups", "dlx-router"):
        assert word not in read.text, word


@pytest.mark.parametrize("text", HOSTILE)
async def test_names_and_notes_of_others_are_text(text: str) -> None:
    async with browser(console(Liar(text))) as client:
        answer = await client.get(f"/status/{LINK}")
    assert answer.status_code == 200
    public(answer)


@pytest.mark.parametrize("token", ODD, ids=range(len(ODD)))
async def test_what_is_no_link_is_no_page_and_the_router_is_not_asked(token: str) -> None:
    liar = Liar()
    async with browser(console(liar)) as client:
        answer = await client.get(f"/status/{token}")
    public(answer)
    assert (answer.status_code, "There is no such page" in answer.text) == (404, True)
    assert liar.status_asked == 0


@pytest.mark.parametrize(("refused", "shown"), [(404, 404), (401, 404), (403, 404), (429, 503), (503, 503), (500, 503)])
async def test_why_there_is_none_is_told_to_nobody(refused: int, shown: int) -> None:
    liar = Liar("vhost 'secret' is led by nobody")
    liar.status_refused = refused
    async with browser(console(liar)) as client:
        answer = await client.get(f"/status/{LINK}")
        unknown = await client.get(f"/status/{LINK[:-1]}y")
    public(answer)
    assert (answer.status_code, "secret" in answer.text) == (shown, False)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.get("retry-after") == ("5" if shown == 503 else None)
    assert unknown.status_code == 404


async def test_however_many_ask_the_router_is_asked_once_within_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    liar = Liar()
    async with browser(console(liar)) as client:
        answers = await asyncio.gather(*(client.get(f"/status/{LINK}") for _ in range(6)))
        answers += [await client.get(f"/status/{LINK}") for _ in range(30)]
        assert {answer.status_code for answer in answers} == {200}
        assert liar.status_asked == 1
        monkeypatch.setattr(status_pages, "KEPT_S", -1.0)
        liar.status_refused = 404
        assert (await client.get(f"/status/{LINK}")).status_code == 404, (
            "a page that is not valid any more is forgotten"
        )


async def test_a_router_that_is_away_costs_the_page_and_tells_no_address() -> None:
    app = create_app([RouterApi("one", "http://127.0.0.1:1")], Hosts("127.0.0.1"))
    async with browser(app) as client:
        answer = await client.get(f"/status/{LINK}")
    public(answer)
    assert (answer.status_code, "127.0.0.1" in answer.text) == (503, False)


async def test_each_of_several_routers_has_its_own_pages() -> None:
    routers = [RouterApi(name, f"http://{name}:9719", httpx.ASGITransport(Liar(name))) for name in ("north", "south")]
    app = create_app(routers, Hosts("127.0.0.1"))
    async with browser(app) as client:
        texts = [(await client.get(f"{at}/status/{LINK}")).text for at in ("", "/at/north", "/at/south")]
        assert (await client.get(f"/at/west/status/{LINK}")).status_code == 404
    assert ["<h1>north</h1>" in text for text in texts] == [True, True, False]
    async with logged_in(app) as client:
        page = (await client.get("/at/south/groups/g1-1")).text
        made = await client.post("/at/south/groups/g1-1/share", data={"csrf": csrf(page)})
    assert f'value="http://127.0.0.1:9718/at/south/status/{LINK}"' in made.text


async def test_an_operator_shares_and_revokes_and_a_viewer_sees_that_it_is_shared() -> None:
    liar = Liar()
    liar.is_shared = False
    async with logged_in(console(liar)) as client:
        page = (await client.get("/groups/g1-1")).text
        made = await client.post(
            "/groups/g1-1/share", data={"csrf": csrf(page), "note": " We are\r\nat it ", "shows_error": "1"}
        )
        liar.is_shared = True
        shared = (await client.get("/groups/g1-1")).text
        listed = (await client.get("/groups/shared")).text
        file = (await client.get("/groups/shared?format=json")).json()
        gone = await client.post("/groups/g1-1/unshare", data={"csrf": csrf(page)})
    assert ("Share a status page" in page, "Revoke the status page" in page) == (True, False)
    assert "dlx-router groups share g1-1" in unescape(page)
    assert (made.status_code, made.headers["cache-control"]) == (200, "no-store")
    assert f'value="http://127.0.0.1:9718/status/{LINK}"' in made.text
    assert ("Share a status page" in shared, "Revoke the status page" in shared, LINK in shared) == (False, True, False)
    assert 'href="/groups/g1-1"' in listed
    assert 'action="/groups/g1-1/unshare"' in listed
    assert [(row["group"], row["shows_error"], LINK in str(row)) for row in file] == [("g1-1", True, False)]
    assert (gone.status_code, gone.headers["location"]) == (303, "/groups/g1-1")
    assert liar.asked == [
        ("POST", "/groups/g1-1/status-page", {"note": "We are\nat it", "shows_error": True}),
        ("DELETE", "/groups/g1-1/status-page", None),
    ]
    async with logged_in(console(Liar(role="viewer"))) as client:
        page = (await client.get("/groups/g1-1")).text
        listed = (await client.get("/groups/shared")).text
    assert "/unshare" not in listed
    assert ("Status page" in page, "/share" in page, "/unshare" in page) == (True, False, False)


# -- a real router ----------------------------------------------------------------------------------------------------


def link_of(page: str) -> str:
    link = re.search(r'/status/[A-Za-z0-9_-]{43}(?=")', page)
    assert link is not None, page
    return link[0]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_group_is_shared_read_by_a_stranger_and_revoked(desk: Desk) -> None:
    queue = "public.<b>orders</b>"
    desk.kill(queue, 3, error="order 17 of bob@example.com timed out")
    (group,) = [row["id"] for row in desk.rows("/groups") if row["failed_queue"] == queue]
    letters = [str(row["id"]) for row in desk.rows("/letters", queue=queue)]
    made = desk.send(f"/groups/{group}", f"/groups/{group}/share", note="We <i>know</i>\nof it")
    assert made.status_code == 200, made.text
    link = link_of(made.text)
    with httpx.Client(base_url=desk.url, timeout=60, trust_env=False, verify=NO_TLS) as stranger:
        answer = stranger.get(link)
        read = public(answer)
        assert answer.status_code == 200
        assert "We <i>know</i>\nof it" in read.text
        assert queue in read.text
        assert ("There now3" in read.text, "Failures in all3" in read.text) == (True, True)
        assert "last 24 hours: 3, at most 3 in one" in read.text
        for word in (str(group), *letters, "TimeoutError", "timed out", "bob@", "SPRING", "olga", desk.vhost.name):
            assert word not in read.text, word
        assert stranger.get(link[:-2] + "xy").status_code == 404
        again = desk.send(f"/groups/{group}", f"/groups/{group}/share")
        assert (again.status_code, "has shared a page of group" in unescape(again.text)) == (409, True)
        assert "page.shared" in desk.web.get("/audit").text
        assert link.rpartition("/")[2] not in desk.web.get("/audit?format=json").text
        assert desk.send(f"/groups/{group}", f"/groups/{group}/unshare").status_code == 303
        eventually(lambda: stranger.get(link).status_code == 404, 20, every=0.2)
    again = desk.send(f"/groups/{group}", f"/groups/{group}/share", shows_error="1")
    with httpx.Client(base_url=desk.url, timeout=60, trust_env=False, verify=NO_TLS) as stranger:
        text = Read(stranger.get(link_of(again.text)).text).text
    assert ("TimeoutError" in text, "order 17" in text, "bob@" in text) == (True, False, False)
    assert link.rpartition("/")[2] not in desk.router.output


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_routers_own_port_has_it_too_and_not_where_its_console_is_off(
    start_router: Callable[..., Router], tmp_path: Path, amqp: Client
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    files = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    router = start_router(POLICIES, CONSOLE_URL="https://dlx.example.com/", **files)
    amqp.queue("orders", dead_letter_exchange=INBOX)
    amqp.publish("x", key="orders")
    amqp.fail("orders")
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:

        def groups() -> list[dict[str, str]]:
            answer = web.get("/api/v1/groups", headers=headers)
            return list(answer.json()["groups"]) if answer.status_code == 200 else []

        group = eventually(groups, 20)[0]["id"]
        answer = web.post(f"/api/v1/groups/{group}/status-page", headers=headers, json={"note": "n"})
        made = answer.json()
        assert answer.status_code == 201, made
        assert made["url"] == f"https://dlx.example.com{made['path']}"
        eventually(lambda: web.get(made["path"]).status_code == 200, 20, every=0.2)
        public(web.get(made["path"]))
        assert web.get("/status/").status_code == 404
        router.stop()
        router.start(within=40)
        eventually(lambda: web.get(made["path"]).status_code == 200, 30, every=0.5)
    router.stop()
    off = start_router(POLICIES, CONSOLE="off", **files)
    with httpx.Client(base_url=f"http://127.0.0.1:{off.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:
        eventually(lambda: web.get("/api/v1/groups", headers=headers).status_code == 200, 20)
        assert web.get(made["path"]).status_code == 404
        assert web.get(f"/api/v1{made['path']}").status_code == 401, "as every path without a token"
        answer = web.post(f"/api/v1/groups/{group}/status-page", headers=headers, json={})
        assert (answer.status_code, "CONSOLE=off" in answer.json()["error"]) == (409, True)
        gone = web.delete(f"/api/v1/groups/{group}/status-page", headers=headers)
        assert (gone.status_code, gone.json()["is_shared"]) == (200, True), "what was shared before can be revoked"
