"""Only the leader of a vhost indexes it; the others say so, and the next takes over."""

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.index.conftest import POLICIES
from tests.support.bulk import dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("newest")
def test_another_router_takes_the_index_over(start_router: Callable[..., Router], amqp: Client, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32), encoding="utf-8")

    def started(name: str) -> Router:
        return start_router(POLICIES, PROVENANCE_KEY_FILE=str(key), INDEX_PATH=str(tmp_path / name), HEARTBEAT="2")

    def known(router: Router) -> int:
        status, text = router.ask("/api/v1/letters")
        assert status == 200, text
        return len(json.loads(text)["letters"])

    first = started("one")
    eventually(lambda: first.ask("/api/v1/letters")[0] == 200, 20)
    second = started("two")
    pour(amqp, dying_queue(amqp, "orders"), ["a", "b"])
    eventually(lambda: known(first) == 2, 20)
    status, text = second.ask("/api/v1/letters")
    assert (status, "leads no vhost" in text) == (503, True)
    first.kill()
    eventually(lambda: known(second) == 2, 40)
