"""A history tells what happened: six dead-letterings that the target refused are none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.index.conftest import Desk
from tests.index.test_commands import run
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

NOWHERE: Final = """
version: 1
policies:
  - name: nowhere
    match: "#"
    definition: {max-delivery-attempts: 1, dead-letter-exchange: missing}
"""


@pytest.mark.usefixtures("newest")
def test_a_refused_dead_lettering_is_told_as_one_and_parking_says_why(
    amqp: Client, vhost: Vhost, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    router = start_router(NOWHERE, INDEX_PATH=str(tmp_path / "i"), UNROUTABLE_GRACE="1s", CONSOLE="off")
    desk = Desk(vhost, router, amqp, tmp_path / "i")
    desk.kill(desk.work("orders"), "pay", headers={"x-error-type": "Declined", "x-error-message": "no money"})

    def parked() -> dict[str, Any]:
        (row,) = desk.letters(1, queue="orders")
        (letter,) = desk.get(f"/letters/{row['id']}")[1]["letters"]
        assert letter["state"] == "parked", letter["journey"]
        return dict(letter)

    letter = eventually(parked, 60)
    steps = [(step["kind"], step["outcome"], step["outcome_cause"]) for step in letter["journey"]]
    assert steps[0] == ("dead_lettered", "refused", "missing_exchange")
    assert {step for step in steps if step[0] == "dead_lettered"} == {("dead_lettered", "refused", "missing_exchange")}
    assert steps[-1] == ("parked", "done", None)
    assert "missing does not exist" in letter["parked"]["why"]
    assert "declare it" in letter["parked"]["resolve"]
    shown = run(desk, "letters", "show", letter["id"]).stdout
    assert "not dead-lettered: the target did not take it (missing_exchange)" in shown
    assert "because missing does not exist" in shown
    assert "no money" not in shown
