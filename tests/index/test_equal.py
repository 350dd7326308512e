"""Equal messages: each counts, whatever happens to one of them, and a copy after a crash is known as a possible one."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.core.letter import FIRST_SERIAL
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from tests.core.core_samples import NOW, letter
from tests.index.conftest import Desk
from tests.journal.journal_samples import RULING, line
from tests.journal.rows_of import rows_of
from tests.support.eventually import eventually

CHANNEL: Final = FIRST_SERIAL + 7
OTHER_CHANNEL: Final = CHANNEL + (1 << 40)
EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others


def event(which: int, serial: int | None, kind: str = "dead_lettered", at: int = 0, **own: Any) -> bytes:
    """The line of an event of a message with this serial; those of one `which` are equal byte for byte."""
    copy = own.pop("possible_copy", False)
    died = letter(id=f"{which:032x}", failed_queue="orders", serial=serial, possible_copy=copy, **own)
    task = "" if kind == "dead_lettered" else "t1"
    return line(died, RULING._replace(kind=kind, redrive_id=task), now_ms=NOW + at)


def found(file: Path) -> list[dict[str, Any]]:
    return Reader(file).letters(Wanted(), EVERYTHING, limit=1000, before=None)


def states(file: Path) -> Counter[tuple[str, str]]:
    return Counter((row["id"], row["state"]) for row in found(file))


def group_of(file: Path) -> dict[str, Any]:
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    return group


@pytest.mark.usefixtures("newest")
def test_twenty_equal_dead_letters_count_as_twenty_also_after_one_was_discarded(desk: Desk) -> None:
    queue = desk.work("equal")
    for _ in range(20):
        desk.amqp.publish("pay 10 EUR", key=queue, message_id="order-1")
    for _ in range(20):
        desk.amqp.await_message(queue)
    desk.amqp.channel.basic_nack(0, multiple=True, requeue=False)
    rows = desk.letters(20, queue=queue)
    assert len({row["serial"] for row in rows}) == 20
    (group,) = (group for group in desk.get("/groups", queue=queue)[1]["groups"])
    assert (group["lying"], group["deaths"]) == (20, 20)
    id_, equal = Counter(row["id"] for row in rows).most_common(1)[0]  # a death that a second later differs in it
    task = {"queue": f"DLQ.{queue}", "kind": "discard", "ids": [id_], "rate": 0, "vhost": desk.vhost.name}
    _, started = desk.ask("POST", "/tasks", json=task)

    def ended() -> dict[str, Any]:
        _, shown = desk.get(f"/tasks/{started['id']}", vhost=desk.vhost.name)
        assert shown["state"] == "done", shown
        return dict(shown)

    done = eventually(ended, 60)
    assert done["counts"]["sent"] == 1
    assert f"{equal - 1} stay: equal byte for byte" in done["why"]
    assert desk.amqp.depth(f"DLQ.{queue}") == 19
    desk.letters(1, queue=queue, state="discarded")
    desk.letters(19, queue=queue, state="dead")
    (group,) = desk.get("/groups", queue=queue)[1]["groups"]
    assert (group["lying"], group["states"]) == (19, {"dead": 19, "discarded": 1})


@pytest.mark.usefixtures("newest")
def test_large_bodies_that_begin_alike_are_different_letters(desk: Desk) -> None:
    queue = desk.work("large")
    desk.kill(queue, *(b"x" * 70_000 + b"%d" % number for number in range(5)), message_id="order-1")
    assert len({row["id"] for row in desk.letters(5, queue=queue)}) == 5


steps = st.lists(
    st.tuples(st.sampled_from(["dies", "discarded", "redriven", "told again"]), st.integers(0, 1), st.integers(0, 50)),
    max_size=30,
)


@pytest.mark.parametrize("written", [b"".join, rows_of], ids=["lines", "rows"])
@settings(deadline=None, max_examples=25)
@given(steps=steps, cut=st.integers(0, 30))
def test_each_of_equal_messages_is_where_it_is_whatever_happens_to_others(
    written: Callable[[list[bytes]], bytes], steps: list[tuple[str, int, int]], cut: int, tmp_path_factory: Any
) -> None:
    """The law of identity × equal messages: the index against a model that knows each message."""
    file = tmp_path_factory.mktemp("equal") / "index.sqlite"
    where: dict[tuple[int, int], tuple[str, int]] = {}  # by id and serial: state, redrives
    lines: list[bytes] = []
    deaths = 0
    for at, (what, which, chosen) in enumerate(steps):
        known = [name for name in where if name[0] == which]
        if what == "told again" and lines:
            lines.append(lines[chosen % len(lines)])
        elif what == "dies" or not known:
            name = known[chosen % len(known)] if known and chosen % 2 else (which, CHANNEL + at)
            state, redrives = where.get(name, ("redriven", -1))
            if state != "redriven":
                continue
            where[name] = "dead", redrives + 1
            deaths += 1
            lines.append(event(*name, at=at, redrives=redrives + 1))
        else:
            name = known[chosen % len(known)]
            state, redrives = where[name]
            if what not in {"discarded", "redriven"} or state != "dead":
                continue
            where[name] = what, redrives
            lines.append(event(*name, what, at=at, redrives=redrives))
    store = Store(open_writer(file, max_bytes=1 << 30))
    for number, some in enumerate((lines[:cut], lines[cut:])):
        if some:
            store.apply("/", [Message(number, written(some))])
    store.close()
    if not where:
        return
    assert states(file) == Counter((f"{which:032x}", state) for (which, _), (state, _) in where.items())
    lying = sum(state == "dead" for state, _ in where.values())
    assert (group_of(file)["lying"], group_of(file)["deaths"]) == (lying, deaths)


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_crash_gave_back_is_the_letter_that_was_handled_and_maybe_twice(
    store: Store,
    file: Path,
    apart: bool,  # noqa: FBT001 - a row of the table
) -> None:
    lines = [event(1, CHANNEL), event(1, OTHER_CHANNEL, at=9, possible_copy=True)]
    for number, some in enumerate(([lines[0]], [lines[1]]) if apart else [lines]):
        store.apply("/", [Message(number, b"".join(some))])
    (row,) = found(file)
    assert (row["serial"], row["copies"], row["state"]) == (OTHER_CHANNEL, 1, "dead")
    assert group_of(file)["lying"] == 1
    store.apply("/", [Message(5, lines[0])])  # told twice
    assert len(found(file)) == 1
    store.apply("/", [Message(6, event(1, CHANNEL, "discarded", at=20))])  # the copy before did arrive
    assert states(file) == Counter({(f"{1:032x}", "dead"): 1, (f"{1:032x}", "discarded"): 1})


def test_equal_messages_that_were_delivered_before_are_not_taken_for_each_other(store: Store, file: Path) -> None:
    """One session has them all: each is another message, though the broker delivered each before."""
    store.apply("/", [Message(0, b"".join(event(1, CHANNEL + at, possible_copy=True) for at in range(20)))])
    assert states(file) == Counter({(f"{1:032x}", "dead"): 20})
    again = b"".join(event(1, OTHER_CHANNEL + at, at=5, possible_copy=True) for at in range(3))
    store.apply("/", [Message(1, again)])  # which of them they are nobody knows
    assert group_of(file)["lying"] == 23


def test_a_letter_of_an_older_router_gets_its_serial_with_its_next_event(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, event(1, None))])
    store.apply("/", [Message(1, event(1, CHANNEL, "redriven", at=5, possible_copy=True))])
    store.apply("/", [Message(2, event(1, None, "parked", at=9))])
    (row,) = found(file)
    assert (row["serial"], row["copies"], row["state"]) == (CHANNEL, 0, "parked")
