"""The console at `/` of a router, in its process."""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dlx_router.console.guard import AT_ONCE
from tests.console.conftest import POLICIES, TOKENS
from tests.console.liar import TOKEN, csrf
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router

pytestmark = pytest.mark.usefixtures("newest")


@pytest.fixture
def router(start_router: Callable[..., Router], tmp_path: Path) -> Router:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    return start_router(POLICIES, INDEX_PATH=str(tmp_path / "i"), API_TOKENS_FILE=str(tmp_path / "tokens.yaml"))


def web_of(router: Router) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS)


def test_pages_are_served_by_the_process_of_the_router(router: Router) -> None:
    router.await_ready(40)
    with web_of(router) as web:
        assert web.get("/nowhere").status_code == 404
        assert web.get("/groups?a=1").headers["location"] == "/login?next=%2Fgroups%3Fa%3D1"
        origin = {"origin": f"http://127.0.0.1:{router.port}"}
        assert web.post("/login", data={"token": TOKEN}, headers=origin).status_code == 303
        page = web.get("/")
        assert "Ready" in page.text
        assert "olga · operator" in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert web.get("/", headers={"host": "evil.example"}).status_code == 403
        assert web.post("/logout", data={"csrf": "guessed"}).status_code == 403
        cookie = web.cookies["dlx_console"]
        assert web.post("/logout", data={"csrf": csrf(page.text)}).status_code == 303
        assert web.get("/groups", headers={"cookie": f"dlx_console={cookie}"}).status_code == 303, "a copy is over too"
    assert router.ask("/readyz")[0] == 200


def test_who_sends_slowly_keeps_nobody_from_the_pages(router: Router) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\ntoken="
    with contextlib.ExitStack() as held:
        for _ in range(2 * AT_ONCE):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", router.port)))
            connection.sendall(head)
        eventually(lambda: router.ask("/login")[0] == 200)


def test_off_there_is_nothing_and_without_tokens_nobody_logs_in(start_router: Callable[..., Router]) -> None:
    off = start_router(POLICIES, CONSOLE="off")
    assert off.ask("/")[0] == 404
    assert off.ask("/login")[0] == 404


def test_a_person_whom_a_trusted_proxy_names_is_in_at_the_pages_only(
    start_router: Callable[..., Router], tmp_path: Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    settings = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    router = start_router(POLICIES, **settings, SSO_PROXIES="127.0.0.1", SSO_ROLES="ops=operator")
    router.await_ready(40)
    named = {"x-forwarded-user": "ann@example.com", "x-forwarded-groups": "dev, ops"}
    with web_of(router) as web:
        via = {**named, "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
        assert "ann@example.com · operator" in web.get("/", headers=via).text
        assert web.get("/", headers={**named, "x-forwarded-groups": "dev"}).status_code == 403
        web.cookies.clear()
        assert web.get("/groups").status_code == 303, "the proxy names nobody"
        assert web.get("/api/v1/groups", headers=named).status_code == 401, "the API asks for tokens"


def test_proxies_are_believed_as_the_settings_say(start_router: Callable[..., Router], tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    settings = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    settings |= {"SSO_PROXIES": "10.0.0.5", "SSO_ROLES": "ops=admin", "HTTP_TRUSTED_PROXIES": "127.0.0.0/8"}
    router = start_router(POLICIES, **settings)
    claimed = {"x-forwarded-user": "eve", "x-forwarded-groups": "ops", "x-forwarded-for": "10.0.0.5"}
    with web_of(router) as web:
        assert web.get("/groups", headers=claimed).status_code == 303, "nobody is a trusted proxy by saying so"

        def tried(forwarded: str) -> str:
            return web.post("/login", data={"token": "wrong"}, headers={"x-forwarded-for": forwarded}).text

        eventually(lambda: "too many tries" in tried("198.51.100.1, 203.0.113.9"), 20)
        assert "too many tries" not in tried("203.0.113.10"), "others behind the proxy have tries of their own"
