"""A router alone, whose broker is away: whoever asks is told that, and is not sent to another router."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.router import Router
from tools.brokers import free_port


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, queue: a}]\n", encoding="utf-8")
    url = f"amqp://guest:s3cret@127.0.0.1:{free_port()}/"
    env = {"INDEX_PATH": str(tmp_path / "index")}
    process = Router(amqp_url=url, policies=tmp_path, log=tmp_path / "log", env=env).start(wait=False)
    yield process
    process.stop()


ASKED = {"letters": "/letters", "tasks": "/tasks", "queues": "/queues", "audits": "/audits"}


def test_a_lone_router_without_a_broker_says_so_and_sends_nobody_to_another(router: Router) -> None:
    def said(path: str) -> str:
        status, text = router.ask(f"/api/v1{path}")
        assert status == 503, text
        error: str = json.loads(text)["error"]
        return error

    eventually(lambda: "no connection to the broker (" in said("/letters"), 20)
    for path in ASKED.values():
        text = said(path)
        assert "no connection to the broker" in text, (path, text)
        assert "ask the" not in text, (path, text)
        assert "ask another" not in text, (path, text)
        assert "s3cret" not in text
