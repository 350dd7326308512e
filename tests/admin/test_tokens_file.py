"""A tokens file, and an index, that break while the router runs: the router goes on, and says so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlx_router.config.api_access.tokens import Tokens, TokensError
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router

TOKEN = "0123456789abcdef-ann"
TOKENS = f"tokens: [{{name: ann, role: admin, token: {TOKEN}}}]"
Start = Callable[..., Router]


def status(router: Router) -> Any:
    url = f"http://127.0.0.1:{router.port}/api/v1/status"
    answer = httpx.get(url, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, verify=NO_TLS, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "broken", ["tokens: 7", "tokens: {x: [", "[" * 10_000, None], ids=["odd", "cut", "deep", "gone"]
)
@pytest.mark.usefixtures("newest")
def test_a_tokens_file_that_breaks_while_running_is_told(
    start_router: Start, tmp_path: Path, broken: str | None
) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(TOKENS, encoding="utf-8")
    router = start_router(POLICY, API_TOKENS_FILE=str(file))
    assert status(router)["tokens"] == {"on": True, "trouble": None}
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken, encoding="utf-8")
    eventually(lambda: "API_TOKENS_FILE" in router.ask("/readyz")[1])
    assert router.ask("/readyz")[0] == 200, "a note"
    assert "stay valid" in router.ask("/readyz")[1]
    assert "API_TOKENS_FILE" in status(router)["tokens"]["trouble"]
    assert router.output.count("tokens.broken") == 1
    file.write_text(TOKENS, encoding="utf-8")
    eventually(lambda: "API_TOKENS_FILE" not in router.ask("/readyz")[1])
    assert status(router)["tokens"]["trouble"] is None
    assert "tokens.mended" in router.output


@pytest.mark.pure
@pytest.mark.parametrize("key", ["vhost", "match"])
def test_a_limit_that_is_empty_is_no_token_for_all(tmp_path: Path, key: str) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"tokens: [{{name: ann, role: admin, token: {TOKEN}, {key}: }}]", encoding="utf-8")
    with pytest.raises(TokensError, match=f"token 1: {key} is no text; leave it out where the token is for all"):
        Tokens(file)


@pytest.mark.pure
def test_a_broken_file_is_read_once_however_often_strangers_ask(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(TOKENS, encoding="utf-8")
    tokens = Tokens(file)
    file.write_text("tokens: 7", encoding="utf-8")
    trouble = tokens.look()
    assert {tokens.find(f"stranger {number}") for number in range(50)} == {None}
    assert tokens.look() is trouble, "a text of another reading would be another one"
    assert (tokens.find(TOKEN) is not None, "no list" in str(trouble)) == (True, True)
    file.rename(tmp_path / "away")
    assert "No such file" in str(tokens.look())
    (tmp_path / "away").rename(file)
    assert "no list" in str(tokens.look())
    file.write_text(TOKENS, encoding="utf-8")
    assert (tokens.look(), tokens.find(TOKEN) is not None) == (None, True)


@pytest.mark.usefixtures("newest")
def test_an_index_that_cannot_be_written_is_told_and_letters_go_on(
    start_router: Start, amqp: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    router = start_router(POLICY, INDEX_PATH=str(folder / "index.sqlite"))
    amqp.queue("orders", dead_letter_exchange="dlx-router.inbox")
    amqp.publish("a", key="orders")
    amqp.fail("orders")
    eventually(lambda: router.metric("index_events_total") >= 1)
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("a file, where a folder was", encoding="utf-8")
    eventually(lambda: "INDEX_PATH" in router.ask("/readyz")[1], within=15)
    assert router.ask("/readyz")[0] == 200, "a note"
    assert json.loads(router.ask("/api/v1/status")[1])["index"]["trouble"]
    assert "index.trouble" in router.output
    amqp.publish("b", key="orders")
    amqp.fail("orders")
    eventually(lambda: amqp.exists("DLQ.orders") and amqp.depth("DLQ.orders") == 2)
    folder.unlink()
    eventually(lambda: "INDEX_PATH" not in router.ask("/readyz")[1], within=20)
    eventually(lambda: len(json.loads(router.ask("/api/v1/letters")[1])["letters"]) == 2, within=20)


@pytest.mark.usefixtures("newest")
def test_an_index_that_cannot_be_made_is_told_from_the_start(start_router: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    router = start_router(POLICY, INDEX_PATH=str(tmp_path / "file" / "index.sqlite"))
    eventually(lambda: "INDEX_PATH" in router.ask("/readyz")[1], within=15)
    assert router.ask("/readyz")[0] == 200
