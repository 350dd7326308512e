"""What waits for an endpoint: bounded, tried again with pauses, and one that is refused holds up no other."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.notices import Message
from dlx_router.core.redelivery import GIVE_UP_MS, LONGEST_MS
from dlx_router.webhooks.pending import MOST, Pending


def message(name: str = "a", ts_ms: int = 0, vhost: str = "/") -> Message:
    return Message(name, "group.opened", vhost, ts_ms, 1, ())


def sent(pending: Pending, now: int) -> str | None:
    entry = pending.next(now)
    return None if entry is None else entry.message.id


def test_a_message_is_due_at_once_and_gone_when_it_was_taken() -> None:
    pending = Pending()
    pending.add(message(), 10)
    assert sent(pending, 10) == "a"
    pending.taken("a")
    assert (sent(pending, 10**9), len(pending)) == (None, 0)


def test_one_that_failed_is_tried_later_and_others_go_before_it() -> None:
    pending = Pending()
    pending.add(message("a"), 0)
    pending.add(message("b"), 0)
    pending.failed("a", 0, 0.5)
    assert sent(pending, 0) is None, "the endpoint rests"
    assert sent(pending, 1_000) == "b"
    pending.taken("b")
    assert sent(pending, 4_999) is None
    assert sent(pending, 5_000) == "a"


def test_it_waits_as_long_as_the_receiver_asked() -> None:
    pending = Pending()
    pending.add(message(), 0)
    pending.failed("a", 0, 0.5, asked_ms=120_000)
    assert (sent(pending, 119_999), sent(pending, 120_000)) == (None, "a")


def test_what_a_receiver_asks_for_is_for_all_that_waits_for_it() -> None:
    """A chat that says "too many requests" is not asked by the next message a second later."""
    pending = Pending()
    pending.add(message("a"), 0)
    pending.add(message("b"), 0)
    pending.failed("a", 0, 0.5, asked_ms=30_000)
    assert sent(pending, 29_999) is None
    assert sent(pending, 30_000) == "b"
    pending.failed("b", 30_000, 0.5, asked_ms=10**12)
    assert sent(pending, 30_000 + LONGEST_MS - 1) is None


def test_after_a_day_nobody_wants_to_know() -> None:
    pending = Pending()
    pending.add(message("old", ts_ms=0), 0)
    pending.add(message("new", ts_ms=GIVE_UP_MS), 0)
    assert [entry.id for entry in pending.expired(GIVE_UP_MS)] == ["old"]
    assert sent(pending, 0) == "new"


def test_a_dead_endpoint_keeps_so_many_and_drops_the_oldest() -> None:
    pending = Pending()
    dropped = [pending.add(message(str(number)), 0) for number in range(MOST + 3)]
    assert [entry.id for entry in dropped if entry is not None] == ["0", "1", "2"]
    assert len(pending) == MOST


def test_the_same_message_is_not_added_twice_and_those_of_a_vhost_can_be_left() -> None:
    pending = Pending()
    pending.add(message("a"), 0)
    pending.add(message("a"), 0)
    pending.add(message("b", vhost="shop"), 0)
    assert len(pending) == 2
    pending.drop("/")
    assert sent(pending, 0) == "b"


@given(st.integers(1, 60))
def test_however_many_wait_a_dead_endpoint_is_asked_seldom(waiting: int) -> None:
    pending, now, asked = Pending(), 0, 0
    for number in range(waiting):
        pending.add(message(str(number)), 0)
    while now < 1_200_000:
        if (name := sent(pending, now)) is not None:
            asked += 1
            pending.failed(name, now, 0.5)
        now += 1000
    assert asked <= 6 + 20
