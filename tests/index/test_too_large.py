"""A letter whose copy fits no frame: journal and index say under one id that it is in quarantine, and why."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.index.conftest import Desk
from tests.journal import stream
from tests.support.bulk import QUARANTINE, dying_queue, frozen
from tests.support.eventually import eventually

FRAME: Final = 131_072
FILL: Final = {"x": "y" * (FRAME - 700)}  # with its deaths it fits a frame, with our record it does not
PAIRS: Final = 10


def die(desk: Desk, queue: str, letters: Sequence[Mapping[str, Any]], *, how: str) -> None:
    """All within a second or so. Those that expire differ in content only: all but the first go the short way.

    4.3 leaves its count of deliveries on what is rejected, and what has one is judged in full.
    """
    work = desk.work(queue) if how == "rejected" else dying_queue(desk.amqp, queue)
    for letter in letters:
        desk.amqp.publish(key=work, **letter)
        if how == "rejected":
            desk.amqp.fail(work)


def settled(desk: Desk, count: float) -> None:
    eventually(lambda: desk.router.metric("settled_total") == count)


def histories(desk: Desk) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Letter → its events, in order."""
    by_letter: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in stream.events(desk.vhost.amqp_url):
        by_letter[event.get("id", "")].append(event)
    return by_letter


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("how", ["expired", "rejected"])
@pytest.mark.parametrize("queue", ["plain.large", "hidden.large", "all.large"])
def test_a_letter_that_fits_no_frame_is_quarantined_under_its_own_id(desk: Desk, queue: str, how: str) -> None:
    queue = f"{queue}.{how}"
    desk.amqp.channel.queue_purge(QUARANTINE)
    before = desk.router.metric("settled_total")
    die(desk, queue, [{"body": "first"}], how=how)
    settled(desk, before + 1)  # where its letters go is known
    with frozen(desk.router):
        pairs = [({"body": f"small {n}"}, {"body": f"large {n}", "headers": FILL}) for n in range(PAIRS)]
        die(desk, queue, [letter for pair in pairs for letter in pair], how=how)
    settled(desk, before + 1 + 2 * PAIRS)
    assert desk.amqp.depth(QUARANTINE) == PAIRS
    letters = desk.letters(2 * PAIRS + 1, queue=queue)
    lost = [letter for letter in letters if letter["state"] == "quarantined"]
    assert (len(lost), {letter["cause"] for letter in lost}) == (PAIRS, {"too_large"})
    journal = histories(desk)
    for letter in lost:
        first, last = journal[letter["id"]]
        assert [first["kind"], last["kind"]] == ["dead_lettered", "quarantined"]
        assert (last["failed_queue"], last["cause"]) == (queue, "too_large")
        assert first["ts_ms"] < last["ts_ms"], "else it is by chance which one counts as the newest"
    unexplained = [events for events in journal.values() if events[0]["kind"] == "quarantined"]
    assert unexplained == []
