"""Marked secrets: put everywhere where a secret may stand, and looked for in all that leaves the router.

Each secret is unlike anything else, so one search over stdout, stderr, /readyz, /metrics and errors finds them all.
"""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dlx_router.client.worker import Router as Worker
from dlx_router.client.worker import WorkerError
from dlx_router.config.environment.settings import Settings, SettingsError
from tests.cli.test_cli import in_a_process
from tests.support.certificates import Authority
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

Start = Callable[..., Router]

MARK: Final = "MARKED"  # part of each secret
POLICY: Final = "version: 1\npolicies: [{name: all, match: '#', definition: {redelivery-delay: 1s}}]\n"


def _everywhere(folder: Path, at: str, port: int) -> dict[str, str]:
    """Settings with a secret in each place that can hold one; the broker and the API are at `at`."""
    key = folder / "provenance.key"
    key.write_text("MARKED-provenance-key-content", encoding="utf-8")
    return {
        "AMQP_URL": f"amqp://guest:MARKED-amqp-password@{at}/%2F",
        "MANAGEMENT_URL": f"http://guest:MARKED-management-password@127.0.0.1:{port}",
        "API_TOKEN": "MARKED-api-token",
        "PROVENANCE_KEY_FILE": str(key),
    }


def _output(router: Router) -> str:
    """All that leaves a router."""
    return router.output + "".join(router.ask(path)[1] for path in ("/readyz", "/livez", "/metrics", "/api/v1/letters"))


def _keeps_quiet(router: Router, *words: str, within: float = 20) -> None:
    """The trouble is said, the secrets are not."""
    eventually(lambda: any(word in _output(router) for word in words), within)
    assert consistently(lambda: MARK not in _output(router))
    assert "Traceback" not in router.output
    assert router.running


def test_a_wrong_password(vhost: Vhost, start_router: Start, tmp_path: Path) -> None:
    at = vhost.amqp_url.rpartition("@")[2].partition("/")[0]
    port = int(vhost.management_url.rpartition(":")[2])
    _keeps_quiet(start_router(POLICY, wait=False, **_everywhere(tmp_path, at, port)), "ACCESS_REFUSED")


def test_a_wrong_management_password(vhost: Vhost, start_router: Start, tmp_path: Path) -> None:
    port = int(vhost.management_url.rpartition(":")[2])
    given = _everywhere(tmp_path, "unused", port) | {"AMQP_URL": vhost.amqp_url, "LOG_LEVEL": "debug"}
    _keeps_quiet(start_router(POLICY, **given), "user or password is wrong")


def test_a_refused_connection_and_an_unknown_host(start_router: Start, tmp_path: Path) -> None:
    at = f"127.0.0.1:{brokers.free_port()},no-such-host.invalid"
    given = _everywhere(tmp_path, at, brokers.free_port())
    _keeps_quiet(start_router(POLICY, wait=False, **given, LOG_LEVEL="debug"), "no-such-host.invalid")


def test_a_failure_of_tls(vhost: Vhost, start_router: Start, tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca", "the authority").issue("router")
    pair.key.write_text(
        "-----BEGIN PRIVATE KEY-----\nMARKED-key-content\n-----END PRIVATE KEY-----\n", encoding="utf-8"
    )
    at = vhost.amqp_url.rpartition("@")[2].partition("/")[0]
    given = _everywhere(tmp_path, at, brokers.free_port())
    tls = {"AMQP_URL": given["AMQP_URL"].replace("amqp:", "amqps:"), "TLS_CERT": str(pair.certificate)}
    broken = start_router(POLICY, wait=False, **given | tls, TLS_KEY=str(pair.key))
    _keeps_quiet(broken, "PEM", "TLS_KEY")
    _keeps_quiet(start_router(POLICY, wait=False, **given | {"AMQP_URL": tls["AMQP_URL"]}), "SSL", "closed", "lost")


def test_secrets_from_files(vhost: Vhost, start_router: Start, tmp_path: Path) -> None:
    at = vhost.amqp_url.rpartition("@")[2].partition("/")[0]
    given = _everywhere(tmp_path, at, brokers.free_port())
    for name in ("AMQP_URL", "MANAGEMENT_URL", "API_TOKEN"):
        file = tmp_path / name
        file.write_text(given.pop(name), encoding="utf-8")
        given[f"{name}_FILE"] = str(file)
    router = start_router(POLICY, wait=False, **given, AMQP_URL="", MANAGEMENT_URL="")
    _keeps_quiet(router, "ACCESS_REFUSED")
    (tmp_path / "AMQP_URL").write_text("MARKED no URL at all", encoding="utf-8")
    _keeps_quiet(router, "not an AMQP URL")


BAD: Final = [
    {"AMQP_URL": "amqp://u:MARKED@h:port/"},
    {"AMQP_URL": "amqp://u:MARK/ED-MARKED@h/"},
    {"AMQP_URL": "MARKED"},
    {"AMQP_URL": "http://u:MARKED@h"},
    {"MANAGEMENT_URL": "amqp://u:MARKED@h"},
    {"MANAGEMENT_URL": "http://u:MARKED@h:port"},
    {"MANAGEMENT_URL": "MARKED"},
]
COMMANDS: Final = [("run",), ("permissions",), ("run", "--amqp-url", "amqp://u:MARKED@h:p/")]


@pytest.mark.parametrize(
    ("bad", "command"), [*((bad, COMMANDS[0]) for bad in BAD), *((BAD[0], command) for command in COMMANDS[1:])]
)
def test_a_setting_that_cannot_be_used(bad: dict[str, str], command: tuple[str, ...]) -> None:
    done = in_a_process(*command, "--policies", "policies", **bad)
    assert done.returncode == 2
    assert MARK not in done.stdout + done.stderr


API_URLS: Final = [
    "http://u:MARKED@127.0.0.1:1",
    "http://u:MARKED@127.0.0.1:{management}",
    "http://u:MARKED@h:port",
    "http://u:MARK/ED@h",
    "http://u:MARKED:x@h",
    "amqp://u:MARKED@h",
    "u:MARKED@h",
]
ASKING: Final = [("queues",), ("status",), ("redrive", "list"), ("console", "--port", "1")]


@pytest.mark.parametrize(("url", "command"), [*zip(API_URLS, itertools.cycle(ASKING), strict=False)])
def test_an_api_url_is_printed_without_its_password(url: str, command: tuple[str, ...], vhost: Vhost) -> None:
    url = url.replace("{management}", vhost.management_url.rpartition(":")[2])
    done = in_a_process(*command, API_URL=url)
    assert done.returncode == 2
    assert MARK not in done.stdout + done.stderr
    with pytest.raises((ValueError, WorkerError)) as error:
        asyncio.run(Worker(url, patience=0).post("/nothing", {}))
    assert MARK not in str(error.value)


def test_a_key_file_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("MARKED", encoding="utf-8")
    done = in_a_process("run", "--policies", "policies", PROVENANCE_KEY_FILE=str(tmp_path / "key"), HTTP_PORT="0")
    assert done.returncode == 2
    assert MARK not in done.stdout + done.stderr


POLICIES: Final = [
    "redelivery-delay: 'amqp://u:MARKED@h/'",
    "dead-letter-exchange: ['amqp://u:MARKED@h/']",
    "dead-letter-queue-type: 'https://u:MARKED@h/'",
    "max-delivery-attempts: 'amqps://u:MARKED@h/'",
    "dead-letter-routing-key: '{amqp://u:MARKED@h/}'",
    "'amqp://u:MARKED@h/': 1",
    "retry-on: ['amqp://u:MARKED@h/']",
    "labels: {a: 'amqp://u:MARKED@h/'",
]


@pytest.mark.parametrize(
    ("written", "command"), [*zip(POLICIES, itertools.cycle(["lint", "explain", "run", "permissions"]), strict=False)]
)
def test_a_policy_with_a_mistake_and_a_url_in_it(written: str, command: str, tmp_path: Path) -> None:
    text = f"version: 1\npolicies:\n  - {{name: a, queue: q, definition: {{{written}}}}}\n"
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    folder = ["--policies", str(tmp_path)]
    arguments = {
        "lint": ["policy", "lint", str(tmp_path)],
        "explain": ["policy", "explain", "q", *folder],
        "run": ["run", *folder],
        "permissions": ["permissions", *folder],
    }
    done = in_a_process(*arguments[command])
    assert done.returncode == 1
    assert MARK not in done.stdout + done.stderr


def test_settings_shown_in_any_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in _everywhere(tmp_path, "h", 1).items():
        monkeypatch.setenv(f"DLX_ROUTER_{name}", value)
    settings = Settings.load()
    shown = [repr(settings), str(settings), f"{settings.model_dump()}", settings.model_dump_json()]
    shown += [repr(settings.broker_address()), *settings.warnings()]
    assert MARK not in "".join(shown)


def test_an_error_about_settings_shown_in_any_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLX_ROUTER_AMQP_URL", "amqp://u:MARKED@h:port/")
    with pytest.raises(SettingsError) as raised:
        Settings.load()
    error: BaseException | None = raised.value
    while error is not None:
        assert MARK not in f"{error!r} {error}"
        error = error.__cause__
