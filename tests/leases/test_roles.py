"""Whose a lease is: roles, scopes, and handles of others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.leases.conftest import Bench
from tests.support.client import Client
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

TOKENS = """
tokens:
  - {name: vic, token: viewer-vvvvvvvvvvvvvvvvvvvv, role: viewer}
  - {name: olga, token: operator-oooooooooooooooooooo, role: operator}
  - {name: otto, token: another-aaaaaaaaaaaaaaaaaaaa, role: admin}
  - {name: sid, token: scoped-ssssssssssssssssssss, role: operator, match: "orders.#"}
"""


def test_a_handle_is_worth_nothing_to_others_and_a_viewer_receives_nothing(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(TOKENS, encoding="utf-8")
    router = start_router(POLICY, API_TOKENS_FILE=str(tokens))
    vic, olga, otto, sid = (
        Bench(vhost, amqp, router, line.partition("token: ")[2].partition(",")[0]) for line in TOKENS.splitlines()[2:]
    )
    queue = olga.failed("work", ["hello"])
    (letter,) = olga.receive(queue)
    assert Bench(vhost, amqp, router).asked(queue).status_code == 401
    assert (vic.asked(queue).status_code, sid.asked(queue).status_code) == (403, 403)
    assert (vic.change(letter, "done").status_code, sid.change(letter, "done").status_code) == (403, 403)
    stolen = otto.change(letter, "done")
    assert (stolen.status_code, "no such lease" in stolen.json()["error"]) == (404, True)
    assert olga.ended(letter, "done") == "done"
    assert letter["handle"] not in router.output


def test_without_a_journal_nothing_is_leased(vhost: Vhost, amqp: Client, start_router: Callable[..., Router]) -> None:
    bench = Bench(vhost, amqp, start_router(POLICY, JOURNAL="off"))
    queue = bench.failed("work", ["hello"])
    answer = bench.asked(queue)
    assert (answer.status_code, "JOURNAL=off" in answer.json()["error"]) == (409, True)
