"""Who may do what over the API, that nobody can hold it, and that its description is true."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from dlx_router.config.api_access.tokens import Role, Tokens, TokensError, caller
from tests.index.conftest import POLICIES, Desk
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router

VIEWER, OPERATOR, SCOPED = "viewer-" + "v" * 20, "operator-" + "o" * 20, "scoped-" + "s" * 20
TOKENS = f"""
tokens:
  - {{name: vic, token: {VIEWER}, role: viewer}}
  - {{name: olga, token-sha256: {sha256(OPERATOR.encode()).hexdigest()}, role: operator}}
  - {{name: sid, token: {SCOPED}, role: operator, match: "orders.#"}}
"""


@pytest.fixture
def guarded(start_router: Callable[..., Router], tmp_path: Path) -> Callable[..., httpx.Response]:
    """ask(token, method, path) of a router that asks for tokens."""
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    env = {"API_TOKENS_FILE": str(tmp_path / "tokens.yaml"), "HTTP_HOST": "0.0.0.0", "INDEX_PATH": str(tmp_path / "i")}
    router = start_router(POLICIES, **env)

    def ask(token: str | None, method: str, path: str, **given: object) -> httpx.Response:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{router.port}/api/v1{path}"
        return httpx.request(method, url, headers=headers, trust_env=False, verify=NO_TLS, timeout=60, **given)  # type: ignore[arg-type]  # by name, as httpx has them

    return ask


@pytest.mark.usefixtures("newest")
def test_off_loopback_a_token_is_asked_for_and_its_role_and_scope_hold(
    guarded: Callable[..., httpx.Response], tmp_path: Path
) -> None:
    assert guarded(None, "GET", "/status").status_code == 401
    assert guarded("wrong" * 5, "GET", "/status").status_code == 401
    assert guarded(VIEWER, "GET", "/status").status_code == 200
    assert guarded(VIEWER, "PATCH", "/groups/g1-0", json={"state": "open"}).status_code == 403
    assert guarded(OPERATOR, "POST", "/index/rebuild").status_code == 403
    assert guarded(SCOPED, "GET", "/explain?queue=mail").status_code == 404
    assert guarded(SCOPED, "GET", "/audits").status_code == 403
    (tmp_path / "tokens.yaml").write_text(TOKENS.replace(VIEWER, "another-token-of-vic"), encoding="utf-8")
    assert guarded(VIEWER, "GET", "/status").status_code == 401
    (tmp_path / "tokens.yaml").write_text("tokens: 7", encoding="utf-8")  # a broken file changes nothing
    assert guarded("another-token-of-vic", "GET", "/status").status_code == 200


TWO = """
version: 1
policies:
  - name: for-orders
    match: "orders.#"
    definition: {max-delivery-attempts: 1}
  - name: for-payroll
    match: "payroll.#"
    definition: {max-delivery-attempts: 1, journal: {redact: [X-Payroll]}}
"""


@pytest.mark.usefixtures("newest")
def test_a_scoped_token_is_shown_the_policies_behind_its_queues_alone(
    start_router: Callable[..., Router], amqp: Client, tmp_path: Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    env = {"API_TOKENS_FILE": str(tmp_path / "tokens.yaml")}
    router = start_router(TWO, INDEX_PATH=str(tmp_path / "i"), **env)

    def ask(token: str, path: str = "/policies") -> httpx.Response:
        url = f"http://127.0.0.1:{router.port}/api/v1{path}"
        headers = {"authorization": f"Bearer {token}"}
        return httpx.get(url, headers=headers, trust_env=False, verify=NO_TLS, timeout=60)

    def names(token: str) -> list[str]:
        answer = ask(token)
        assert answer.status_code == 200, answer.text
        return [policy["name"] for policy in answer.json()["policies"]]

    for queue in ("orders.new", "payroll.new"):
        amqp.queue(queue, dead_letter_exchange="dlx-router.inbox")
        amqp.publish("a", key=queue)
        amqp.fail(queue)
    eventually(lambda: all(f'"{name}.new"' in ask(VIEWER, "/queues").text for name in ("orders", "payroll")), 30)
    assert names(SCOPED) == ["for-orders"]
    assert "payroll" not in ask(SCOPED).text
    assert sorted(names(VIEWER)) == ["for-orders", "for-payroll"]
    router.stop()
    router = start_router(TWO, **env)
    refused = ask(SCOPED)
    assert (refused.status_code, "/explain" in refused.text, "payroll" in refused.text) == (403, True, False)


def test_a_scope_is_of_vhost_and_failed_queue() -> None:
    who = caller("sid", Role.VIEWER, "/", "orders.#")
    assert who.may_see("/", "orders")
    assert who.may_see("/", "orders.eu.new")
    assert not who.may_see("/", "mail")
    assert not who.may_see("other", "orders")
    assert not who.may_see("other")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no list"),
        ("tokens: []", "at least one"),
        ("tokens: [7]", "not a mapping"),
        ("tokens: [{name: a, role: viewer}]", "one of token"),
        ("tokens: [{name: a, role: boss, token: 0123456789abcdefx}]", "role"),
        ("tokens: [{name: a, role: viewer, token: short}]", "16 characters"),
        ("tokens: [{role: viewer, token: 0123456789abcdefx}]", "no name"),
        ("tokens: [{name: a, role: viewer, token: 0123456789abcdefx, scope: x}]", "unknown keys"),
        ("tokens: [{name: a, role: viewer, token-sha256: xyz}]", "64 hex digits"),
        ("tokens: {x: [", "no YAML"),
        (f"tokens: [{', '.join(['{name: a, role: viewer, token: 0123456789abcdefx}'] * 2)}]", "twice"),
    ],
)
def test_a_tokens_file_that_is_wrong_says_where_and_never_a_token(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TokensError, match=why) as error:
        Tokens(file)
    assert "0123456789" not in str(error.value)


@pytest.mark.usefixtures("newest")
def test_a_page_in_a_browser_cannot_use_the_api_of_this_machine(desk: Desk) -> None:
    status, answer = desk.ask("GET", "/status", headers={"host": "evil.example"})
    assert (status, answer["error"]) == (403, "'evil.example' is not this machine")


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_schemathesis_finds_nothing(desk: Desk, tmp_path: Path) -> None:
    """Every path, with requests that fit the description and requests that do not."""
    desk.kill(desk.work("described"), '{"a": 1}', content_type="application/json")
    desk.letters(1, queue="described")
    config = tmp_path / "schemathesis.toml"
    config.write_text("[generation]\nmax-examples = 20\n", encoding="utf-8")
    url = f"http://127.0.0.1:{desk.router.port}/api/v1/openapi.json"
    argv = [sys.executable, "-m", "schemathesis.cli", f"--config-file={config}", "run", url]
    argv += ["--exclude-path=/api/v1/index/rebuild"]  # while it works, others are told to wait: 503
    argv += ["--phases=examples,coverage,fuzzing,stateful", "--rate-limit=40/s", "--seed=1", "--no-color"]
    argv += ["--suppress-health-check=all"]  # how long it takes to draw an example depends on the machine
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env={**os.environ}, check=False)
    assert done.returncode == 0, _findings(done.stdout) + done.stderr[-2000:]
    assert desk.router.ask("/readyz")[0] == 200


def _findings(report: str) -> str:
    """What a report says of failures. An address of 4,097 zeros hides all else."""
    return re.sub(r"(.)\1{80,}", r"\1\1…\1\1", report.partition("= FAILURES =")[2] or report)
