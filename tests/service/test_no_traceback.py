"""Failures of many kinds, one after another: the log has lines that say what and what now, never a traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICY: Final = "version: 1\npolicies: [{name: all, match: '#'}]"
TOKENS: Final = "tokens: [{name: ann, role: admin, token: 0123456789abcdef-ann}]"
TRACES: Final = ("Traceback", 'File "', 'File \\"', "Exception ignored", "--- Logging error")
Start = Callable[..., Router]


def quiet(text: str, *words: str) -> None:
    assert not any(trace in text for trace in TRACES), text
    assert all(word in text for word in words), text


def through(vhost: Vhost, proxy: Proxy) -> str:
    parts = urlsplit(vhost.amqp_url)
    return vhost.amqp_url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("form", ["json", "text"])
def test_failures_of_a_router_that_runs_are_lines_and_no_tracebacks(
    vhost: Vhost, start_router: Start, tmp_path: Path, form: str
) -> None:
    tokens, index = tmp_path / "tokens.yaml", tmp_path / "index.sqlite"
    tokens.write_text(TOKENS)
    index.write_text("somebody's notes, no index")
    with Proxy(urlsplit(vhost.amqp_url).port or 5672) as proxy:
        router = start_router(
            POLICY, AMQP_URL=through(vhost, proxy), API_TOKENS_FILE=str(tokens), INDEX_PATH=str(index), LOG_FORMAT=form
        )
        eventually(lambda: "this is no index of the router" in router.output, 20)
        tokens.write_text("tokens: {x: [")
        next(iter(router.policies.glob("*.yaml"))).write_text("version: 1\npolicies: [{nme: a}]")
        router.signal(signal.SIGHUP)
        eventually(lambda: "tokens.broken" in router.output and "DLX005" in router.output, 20)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: "refused" in router.output.lower(), 20)
        proxy.heal()
        eventually(lambda: router.ask("/readyz")[0] == 200, 30)
        router.stop()
    quiet(router.output, "router.stopped")


def refused(vhost: Vhost, folder: Path, redirected: str, **settings: str) -> tuple[int, str]:
    """Exit code and stderr of a router that does not get far."""
    (folder / "p.yaml").write_text(POLICY)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("DLX_ROUTER_", "PYTHONUNBUFFERED"))}
    given = {"AMQP_URL": vhost.amqp_url, "POLICIES": str(folder), "HTTP_PORT": "0", **settings}
    env |= {f"DLX_ROUTER_{key}": value for key, value in given.items()}
    typed = f"exec {sys.executable} -m dlx_router run {redirected}"
    done = subprocess.run(typed, shell=True, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr + done.stdout


BEGINNINGS: Final = [
    ("", {"HTTP_PORT": "{port}"}, "cannot serve HTTP at"),
    (">&-", {"HTTP_PORT": "{port}"}, "cannot serve HTTP at"),
    ("2>&-", {"HTTP_PORT": "{port}"}, ""),
    ("2>/dev/full", {"HTTP_PORT": "{port}"}, ""),
    ("", {"API_TOKENS_FILE": "{folder}"}, "tokens.refused"),
    ("", {"PROVENANCE_KEY_FILE": "{folder}/nowhere"}, "key"),
    ("", {"HTTP_HOST": "no.such.host.invalid"}, "cannot serve HTTP at"),
]


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(("redirected", "settings", "said"), BEGINNINGS)
def test_what_keeps_a_router_from_starting_is_a_line_and_no_traceback(
    vhost: Vhost, tmp_path: Path, redirected: str, settings: dict[str, str], said: str
) -> None:
    port = urlsplit(vhost.management_url).port
    given = {key: value.format(port=port, folder=tmp_path) for key, value in settings.items()}
    code, printed = refused(vhost, tmp_path, redirected, **given)
    assert code == 2, printed
    quiet(printed, said)


@pytest.mark.usefixtures("newest")
def test_wrong_credentials_are_a_line_and_no_traceback(vhost: Vhost, start_router: Start) -> None:
    parts = urlsplit(vhost.amqp_url)
    wrong = vhost.amqp_url.replace(f"{parts.username}:{parts.password}@", "nobody:wrong@")
    router = start_router(POLICY, wait=False, AMQP_URL=wrong)
    eventually(lambda: "ACCESS_REFUSED" in router.output, 20)
    router.stop()
    quiet(router.output)
