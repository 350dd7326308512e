"""The console at `/` of a router: a process of its own that the first page starts, and that ends with the router."""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from dlx_router.admin.console_door import AT_ONCE
from dlx_router.console.sessions import LOGINS, LOGINS_PER_S
from tests.console.conftest import POLICIES, TOKENS
from tests.console.liar import TOKEN, csrf
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router

pytestmark = pytest.mark.usefixtures("newest")


def consoles(router: Router) -> list[psutil.Process]:
    """Its processes that make pages."""
    return [process for process in psutil.Process(router.pid).children() if "dlx_router.console" in process.cmdline()]


def has_ended(process: psutil.Process) -> bool:
    """Whoever takes over the children of a killed router may leave a zombie for a while: it runs no more."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def router(start_router: Callable[..., Router], tmp_path: Path) -> Router:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    return start_router(POLICIES, INDEX_PATH=str(tmp_path / "i"), API_TOKENS_FILE=str(tmp_path / "tokens.yaml"))


@pytest.mark.slow
def test_the_first_page_starts_it_and_the_routers_end_ends_it(router: Router) -> None:
    assert consoles(router) == []
    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:
        assert web.get("/nowhere").status_code == 404
        assert consoles(router) == []
        eventually(lambda: web.get("/groups?a=1").headers.get("location") == "/login?next=%2Fgroups%3Fa%3D1")
        answer = web.post("/login", data={"token": TOKEN}, headers={"origin": f"http://127.0.0.1:{router.port}"})
        assert answer.status_code == 303
        eventually(lambda: "Ready" in web.get("/").text, 20, every=0.2)
        assert "olga · operator" in web.get("/").text
        assert web.get("/", headers={"host": "evil.example"}).status_code == 403
        assert web.post("/logout", data={"csrf": "guessed"}).status_code == 403
        assert router.ask("/readyz")[0] == 200
        assert len(consoles(router)) == 1
        for process in consoles(router):
            process.kill()
        eventually(lambda: web.get("/login").status_code == 200, 20, every=0.2)
        assert "default-src 'self'" in web.get("/login").headers["content-security-policy"]
        web.post("/login", data={"token": TOKEN})
        assert web.post("/logout", data={"csrf": csrf(web.get("/").text)}).status_code == 303
    left = consoles(router)
    assert len(left) == 1
    router.stop()
    assert psutil.wait_procs(left, timeout=60)[1] == []


def test_who_sends_slowly_keeps_nobody_from_the_pages(router: Router) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\ntoken="
    with contextlib.ExitStack() as held:
        for _ in range(2 * AT_ONCE):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", router.port)))
            connection.sendall(head)
        eventually(lambda: router.ask("/login")[0] == 200)


@pytest.mark.slow
def test_a_router_that_is_killed_takes_it_along(router: Router) -> None:
    eventually(lambda: router.ask("/login")[0] == 200)
    left = consoles(router)
    assert len(left) == 1
    router.kill()
    eventually(lambda: all(map(has_ended, left)), 10)


def test_off_there_is_nothing_and_without_tokens_nobody_logs_in(start_router: Callable[..., Router]) -> None:
    off = start_router(POLICIES, CONSOLE="off")
    assert off.ask("/")[0] == 404
    assert off.ask("/login")[0] == 404


def test_a_person_whom_a_trusted_proxy_names_is_in_and_nobody_else(
    start_router: Callable[..., Router], tmp_path: Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    settings = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    settings |= {"SSO_PROXIES": "127.0.0.1", "SSO_ROLES": "ops=operator"}
    router = start_router(POLICIES, **settings)
    named = {"x-forwarded-user": "ann@example.com", "x-forwarded-groups": "dev, ops"}
    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:
        eventually(lambda: "ann@example.com · operator" in web.get("/", headers=named).text, 20, every=0.2)
        assert web.get("/", headers={**named, "x-forwarded-groups": "dev"}).status_code == 403
        web.cookies.clear()
        assert web.get("/groups").status_code == 303, "the proxy names nobody"
        assert web.get("/groups", headers={"x-dlx-router-person": "dlxp.e30=.x"}).status_code == 303
        assert web.get("/api/v1/groups", headers=named).status_code == 401, "the API asks for tokens"
        via = {**named, "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
        assert "ann@example.com · operator" in web.get("/", headers=via).text, "proxies say whom they ask for"


def test_a_proxy_says_whose_tries_they_are_and_a_right_token_is_never_kept_out(
    start_router: Callable[..., Router], tmp_path: Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    settings = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    router = start_router(POLICIES, **settings, HTTP_TRUSTED_PROXIES="127.0.0.0/8, 10.0.0.0/24")
    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:

        def tried(forwarded: str, token: str = "wrong") -> httpx.Response:
            return web.post("/login", data={"token": token}, headers={"x-forwarded-for": forwarded})

        eventually(lambda: web.get("/login").status_code == 200, 20, every=0.2)
        began = time.monotonic()
        pages = [tried(f"198.51.100.{number}, 203.0.113.9, 10.0.0.7").text for number in range(2 * int(LOGINS))]
        assert "too many tries" not in pages[0]
        tries = LOGINS + LOGINS_PER_S * (time.monotonic() - began)
        answered = sum("too many tries" not in page for page in pages)
        assert answered <= tries, "what the client wrote there is no address of another person"
        assert "too many tries" not in tried("203.0.113.10").text, "others behind the proxy have tries of their own"
        assert "too many tries" in tried("[::ffff:203.0.113.9]:4711").text, "the same address"
        assert tried("203.0.113.9", TOKEN).status_code == 303
        assert web.get("/api/v1/groups", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 401


def test_nobody_is_a_trusted_proxy_by_saying_so(start_router: Callable[..., Router], tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    settings = {"INDEX_PATH": str(tmp_path / "i"), "API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    settings |= {"SSO_PROXIES": "10.0.0.5", "SSO_ROLES": "ops=admin"}
    router = start_router(POLICIES, **settings)
    claimed = {"x-forwarded-user": "eve", "x-forwarded-groups": "ops", "x-forwarded-for": "10.0.0.5"}
    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as web:
        eventually(lambda: web.get("/login").status_code == 200, 20, every=0.2)
        assert web.get("/groups", headers=claimed).status_code == 303
        assert web.get("/groups", headers={**claimed, "forwarded": "for=10.0.0.5"}).status_code == 303
