"""A page in somebody's browser can neither read what this port tells nor change anything through it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.admin.server import AdminServer
from dlx_router.config.api_access.allowed_hosts import Hosts, authority, foreign_page
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.support.client import Client
from tests.support.eventually import consistently
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router

# -- the law of names -------------------------------------------------------------------------------------------------

EVERYWHERE = [
    "127.0.0.1", "127.0.0.1:9719", "127.8.8.8", "localhost", "localhost:1", "LocalHost:9719", "localhost.", "[::1]",
    "[::1]:9719", "10.1.2.3:9719", "192.0.2.7", "[2001:db8::1]:9719", "[2001:DB8::1]", "localhost:", None,
]  # fmt: skip
INSIDE = [
    "router:9719", "dlx-router", "dlx-router.queues.svc:9719", "dlx-router.queues.svc.cluster.local", "DLX.local:1",
    "host.docker.internal:9719", "nas.home.arpa",
]  # fmt: skip
NOWHERE = [
    "evil.example", "evil.example:9719", "EVIL.example.", "localhost.evil.example", "127.0.0.1.evil.example",
    "svc.evil.example", "evilsvc.example", "dlx-router.app", "user@127.0.0.1", "user:password@localhost",
    "localhost:9719:1", "127.0.0.1, evil.example", "127.0.0.1 evil.example", "localhost/", "http://localhost", "[::1",
    "::1", "[evil.example]", "[::1]evil.example", "[::1%25lo]", "localhost:port", "", " ", "local host",
    "lo\xe7alhost", "-" * 300, "..",
]  # fmt: skip


@pytest.mark.parametrize("host", EVERYWHERE)
def test_addresses_and_this_machine_are_names_of_every_router(host: str | None) -> None:
    assert Hosts("127.0.0.1").allow(host)
    assert Hosts("0.0.0.0").allow(host)


@pytest.mark.parametrize("host", INSIDE)
def test_names_that_no_public_zone_holds_are_good_off_loopback_only(host: str) -> None:
    assert Hosts("0.0.0.0").allow(host)
    assert Hosts("10.0.0.1").allow(host)
    assert not Hosts("127.0.0.1").allow(host)
    assert not Hosts("localhost").allow(host)


@pytest.mark.parametrize("host", NOWHERE)
def test_names_of_others_are_refused_everywhere(host: str) -> None:
    assert not Hosts("127.0.0.1").allow(host)
    assert not Hosts("::").allow(host)


def test_listed_names_and_the_one_it_listens_at_are_its_own() -> None:
    listed = Hosts("127.0.0.1", "dlx.example.com, Other.Example.")
    assert all(listed.allow(host) for host in ("DLX.example.com:443", "dlx.example.com.", "other.example"))
    assert not listed.allow("more.example.com")
    assert Hosts("dlx1.example.com").allow("dlx1.example.com:9719")
    assert Hosts("127.0.0.1", "*").allow("anything.example")


@given(st.text(max_size=40), st.sampled_from(["", ":9719", "."]))
def test_whatever_is_allowed_on_loopback_is_an_address_or_localhost(text: str, end: str) -> None:
    if Hosts("127.0.0.1").allow(text + end):
        parsed = authority(text + end)
        assert parsed is not None
        name, port = parsed
        assert set(port) <= set("0123456789")
        assert name in {"localhost", "localhost.localdomain"} or set(name) <= set("0123456789abcdef:.")


@pytest.mark.parametrize(
    ("host", "origins", "sites", "is_foreign"),
    [
        ("127.0.0.1:9719", [], [], False),  # a program
        ("127.0.0.1:9719", ["http://127.0.0.1:9719"], ["same-origin"], False),
        ("localhost:9719", ["http://LOCALHOST:9719"], ["none"], False),
        ("[::1]:9719", ["http://[::1]:9719"], [], False),
        ("dlx.example.com", ["https://dlx.example.com"], ["same-origin"], False),  # a proxy with TLS before us
        ("dlx.example.com:443", ["https://dlx.example.com"], [], False),
        ("127.0.0.1:9719", ["https://listed.example:8443"], [], False),  # a proxy that writes another Host
        ("127.0.0.1:9719", ["https://evil.example"], [], True),
        ("127.0.0.1:9719", ["http://127.0.0.1:3000"], [], True),  # another server of this machine
        ("127.0.0.1:9719", ["http://127.0.0.1"], [], True),
        ("127.0.0.1:9719", ["http://localhost:9719"], [], True),
        ("127.0.0.1:9719", ["null"], [], True),  # a sandboxed frame
        ("127.0.0.1:9719", [""], [], True),
        ("127.0.0.1:9719", ["http://127.0.0.1:9719", "https://evil.example"], [], True),
        ("127.0.0.1:9719", ["http://127.0.0.1:9719 https://evil.example"], [], True),
        ("127.0.0.1:9719", ["http://user@127.0.0.1:9719"], [], True),
        ("127.0.0.1:9719", ["chrome-extension://abcdef"], [], True),
        ("", ["http://"], [], True),
        ("127.0.0.1:9719", [], ["cross-site"], True),
        ("127.0.0.1:9719", [], ["same-site"], True),
        ("127.0.0.1:9719", [], ["same-origin", "cross-site"], True),
        ("127.0.0.1:9719", [], ["what-comes-next"], True),
    ],
)
def test_a_page_of_another_origin_is_foreign(
    host: str,
    origins: list[str],
    sites: list[str],
    is_foreign: bool,  # noqa: FBT001 - a table's column
) -> None:
    hosts = Hosts("127.0.0.1", "listed.example")
    assert (foreign_page(hosts, host, origins, sites) is not None) is is_foreign


def test_a_list_that_holds_no_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for listed in ("https://a.example", "a.example:80", "a b", "user@a", "a/b", "[::1]"):
        monkeypatch.setenv("DLX_ROUTER_HTTP_ALLOWED_HOSTS", listed)
        with pytest.raises(SettingsError, match=r"DLX_ROUTER_HTTP_ALLOWED_HOSTS: .*without scheme and port"):
            Settings.load()


# -- probes and metrics -----------------------------------------------------------------------------------------------


@pytest.fixture
async def port() -> AsyncIterator[int]:
    readiness = Readiness()
    readiness.clear("start")
    server = AdminServer("127.0.0.1", 0, Metrics(), readiness)
    await server.start()
    yield server.port
    await server.stop()


async def answered(port: int, request: str) -> tuple[int, str]:
    """Status and the whole answer to these very bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode("latin-1"))
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: 127.0.0.1\r\n", 200),
        ("Host: LOCALHOST.:9719\r\n", 200),
        ("Host: [::1]:9719\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: user@localhost\r\n", 403),
        ("Host:\r\n", 403),
        ("Host: 127.0.0.1\r\nHost: evil.example\r\n", 400),
        ("Host: 127.0.0.1\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n", 200),
    ],
)
async def test_who_came_by_a_foreign_name_is_told_nothing(port: int, path: str, head: str, status: int) -> None:
    code, answer = await answered(port, f"GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n")
    assert code == status
    assert ("dlx_router_build_info" in answer or '"ready"' in answer) is (status == 200)
    if status == 403:
        assert "DLX_ROUTER_HTTP_ALLOWED_HOSTS" in answer


async def test_liveness_is_told_whoever_asks(port: int) -> None:
    assert (await answered(port, "GET /livez HTTP/1.1\r\nHost: evil.example\r\nOrigin: https://evil.example\r\n\r\n"))[
        0
    ] == 200
    assert (await answered(port, "GET /livez HTTP/1.0\r\n\r\n"))[0] == 200
    assert (await answered(port, "GET /readyz HTTP/1.0\r\n\r\n"))[0] == 200
    assert (await answered(port, "GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))[0] == 404


# -- the API ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(start_router: Callable[..., Router], amqp: Client) -> Iterator[Callable[..., httpx.Response]]:
    """ask(method, path, headers, json) of a router on loopback that asks for no token; queue `dead` has a letter."""
    router = start_router(POLICY)
    amqp.queue("dead")
    amqp.publish("letter", key="dead")
    with httpx.Client(
        base_url=f"http://127.0.0.1:{router.port}/api/v1", trust_env=False, verify=NO_TLS, timeout=60
    ) as client:

        def ask(method: str, path: str, headers: dict[str, str], **body: Any) -> httpx.Response:
            return client.request(method, path, headers=headers, **body)

        yield ask


def foreign(headers: dict[str, str]) -> dict[str, str]:
    return {"content-type": "application/json", **headers}


@pytest.mark.usefixtures("newest")
def test_a_foreign_page_cannot_discard_letters(asked: Callable[..., httpx.Response], amqp: Client, vhost: Any) -> None:
    body = {"kind": "discard", "queue": "dead", "vhost": vhost.name}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = asked("POST", "/tasks", foreign(headers), json=body)
        assert answer.status_code == 403, answer.text
        assert "may not change anything here" in answer.json()["error"]
        for method, path in (
            ("PATCH", "/groups/g1-0"),
            ("POST", "/index/rebuild"),
            ("DELETE", "/tasks/x"),
            ("PUT", "/x"),
        ):
            assert asked(method, path, foreign(headers), json={}).status_code == 403
    assert consistently(lambda: amqp.depth("dead") == 1)
    assert asked("GET", "/status", {"sec-fetch-site": "cross-site"}).status_code == 200  # a browser shows it to nobody


@pytest.mark.usefixtures("newest")
def test_a_token_does_not_help_a_foreign_page(start_router: Callable[..., Router], tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{name: ann, role: admin, token: {'t' * 20}}}]", encoding="utf-8")
    router = start_router(POLICY, API_TOKENS_FILE=str(file), HTTP_HOST="0.0.0.0", HTTP_ALLOWED_HOSTS="dlx.example.com")
    url, token = f"http://127.0.0.1:{router.port}", {"authorization": f"Bearer {'t' * 20}"}

    def status(path: str, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.request(
            "POST", f"{url}{path}", headers=token | named, trust_env=False, verify=NO_TLS, timeout=60
        ).status_code

    assert status("/api/v1/index/rebuild", origin="https://evil.example") == 403
    assert status("/api/v1/index/rebuild", sec_fetch_site="cross-site") == 403
    assert status("/api/v1/index/rebuild", origin="https://dlx.example.com") == 503  # there is no index
    assert status("/api/v1/index/rebuild", origin=url) == 503

    def metrics(host: str) -> int:
        return httpx.get(f"{url}/metrics", headers={"host": host}, trust_env=False, verify=NO_TLS).status_code

    statuses = [metrics(host) for host in ("dlx.example.com", "10.0.0.7:9719", "dlx-router.x.svc:9719", "evil.example")]
    assert statuses == [200, 200, 200, 403]
