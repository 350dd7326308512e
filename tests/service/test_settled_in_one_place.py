"""What the broker forgets, moves or gets back is said in one place: dispatch/settler. No letter is acked beside it.

broker/ has readers of its own, of streams and of the state queue, in which no letters are.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dlx_router

ROOT: Final = Path(dlx_router.__file__).parent
SETTLER: Final = "service/dispatch/settler.py"
ENDS: Final = {"settle", "reject", "give_back"}  # of a delivery, as broker/consumer has them
# Whoever else has a method of such a name, by what it is called where it is used: none of these is a consumer.
OTHERS: Final = {
    "self._settling": "a Settler",
    "super()": "a Settler that ends spans too",
    "self": "a Relay, or the settler itself",
    "worker": "a Relay, which asks its settler",
    "batch": "of the journal",
    "self._spool": "of the journal",
    "self._numbers": "of the index",
    "self._scan": "gives back all at once, by its connection",
}
WIRE: Final = {"ack", "nack", "reject"}
# Of frames: what carries the word of a consumer, and what reads a stream that is no queue of letters.
WRITES: Final = {"broker/consumer.py", "broker/getter.py", "spark/amqp.py"}


def _calls(names: set[str]) -> Iterator[tuple[str, str]]:
    """(file, receiver) of each call of a method of such a name."""
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
                yield file, ast.unparse(node.func.value)


def test_a_delivery_is_ended_by_the_settler_and_nobody_else() -> None:
    calls = [(file, receiver) for file, receiver in _calls(ENDS) if not file.startswith("broker/")]
    beside = [(file, receiver) for file, receiver in calls if file != SETTLER and receiver not in OTHERS]
    assert beside == []
    assert ("service/dispatch/settler.py", "job.consumer") in calls, "there it is found"


def test_acks_are_written_where_deliveries_come_from_and_nowhere_else() -> None:
    assert {file for file, receiver in _calls(WIRE) if receiver == "frames"} == WRITES
