"""What waits for an endpoint: bounded, tried again with pauses, and one that is refused holds up no other."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.notices import Message
from dlx_router.core.redelivery import GIVE_UP_MS, LONGEST_MS
from dlx_router.webhooks.pending import MOST, Pending


def message(name: str = "a", ts_ms: int = 0, vhost: str = "/") -> Message:
    return Message(name, "group.opened", vhost, ts_ms, 1, ())


def sent(pending: Pending, now: int) -> str | None:
    found = pending.next(now)
    return None if found is None else found.message.id


def test_a_message_is_due_at_once_and_gone_when_it_was_taken() -> None:
    one = Pending()
    one.add(message(), 10)
    assert sent(one, 10) == "a"
    one.taken("a")
    assert (sent(one, 10**9), len(one)) == (None, 0)


def test_one_that_failed_is_tried_later_and_others_go_before_it() -> None:
    one = Pending()
    one.add(message("a"), 0)
    one.add(message("b"), 0)
    one.failed("a", 0, 0.5)
    assert sent(one, 0) is None, "the endpoint rests"
    assert sent(one, 1_000) == "b"
    one.taken("b")
    assert sent(one, 4_999) is None
    assert sent(one, 5_000) == "a"


def test_it_waits_as_long_as_the_receiver_asked() -> None:
    one = Pending()
    one.add(message(), 0)
    one.failed("a", 0, 0.5, asked_ms=120_000)
    assert (sent(one, 119_999), sent(one, 120_000)) == (None, "a")


def test_what_a_receiver_asks_for_is_for_all_that_waits_for_it() -> None:
    """A chat that says "too many requests" is not asked by the next message a second later."""
    one = Pending()
    one.add(message("a"), 0)
    one.add(message("b"), 0)
    one.failed("a", 0, 0.5, asked_ms=30_000)
    assert sent(one, 29_999) is None
    assert sent(one, 30_000) == "b"
    one.failed("b", 30_000, 0.5, asked_ms=10**12)
    assert sent(one, 30_000 + LONGEST_MS - 1) is None


def test_after_a_day_nobody_wants_to_know() -> None:
    one = Pending()
    one.add(message("old", ts_ms=0), 0)
    one.add(message("new", ts_ms=GIVE_UP_MS), 0)
    assert [found.id for found in one.expired(GIVE_UP_MS)] == ["old"]
    assert sent(one, 0) == "new"


def test_a_dead_endpoint_keeps_so_many_and_drops_the_oldest() -> None:
    one = Pending()
    dropped = [one.add(message(str(number)), 0) for number in range(MOST + 3)]
    assert [found.id for found in dropped if found is not None] == ["0", "1", "2"]
    assert len(one) == MOST


def test_the_same_message_is_not_added_twice_and_those_of_a_vhost_can_be_left() -> None:
    one = Pending()
    one.add(message("a"), 0)
    one.add(message("a"), 0)
    one.add(message("b", vhost="shop"), 0)
    assert len(one) == 2
    one.drop("/")
    assert sent(one, 0) == "b"


@given(st.integers(1, 60))
def test_however_many_wait_a_dead_endpoint_is_asked_seldom(waiting: int) -> None:
    one, now, asked = Pending(), 0, 0
    for number in range(waiting):
        one.add(message(str(number)), 0)
    while now < 1_200_000:
        if (name := sent(one, now)) is not None:
            asked += 1
            one.failed(name, now, 0.5)
        now += 1000
    assert asked <= 6 + 20
