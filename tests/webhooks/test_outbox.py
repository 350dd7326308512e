"""The outbox of an endpoint: batches lose nothing, a refused message holds up no other, a dead endpoint rests."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.notices import MAX_ITEMS, Notice
from dlx_router.webhooks.outbox import GIVE_UP_MS, INTERVAL_MS, LONGEST_PAUSE_MS, MAX_WAITING, Outbox

KINDS: Final = ("group.opened", "letter.parked", "breaker.opened")


def notice(key: str = "g", kind: str = "group.opened", vhost: str = "/", letters: int | None = None) -> Notice:
    item = {"failed_queue": "q", **({} if letters is None else {"letters": letters})}
    return Notice(kind, vhost, key, ("q",), item)


def filled(*vhosts: str, wall_ms: int = 0) -> Outbox:
    """One message for each vhost, due at 0."""
    outbox = Outbox()
    for vhost in vhosts:
        outbox.add(notice(vhost=vhost), -INTERVAL_MS)
    outbox.close_batches(0, wall_ms)
    return outbox


def sent(outbox: Outbox, now: int) -> str | None:
    entry = outbox.next(now)
    return None if entry is None else entry.message.vhost


def fail(outbox: Outbox, now: int, asked_ms: int = 0) -> None:
    entry = outbox.next(now)
    assert entry is not None
    outbox.failed(entry.message.id, now, 0.5, asked_ms)


VHOSTS: Final = st.sampled_from(["/", "shop"])
STEP: Final = st.tuples(st.integers(0, 40_000), st.sampled_from(KINDS), VHOSTS, st.integers(0, 30), st.integers(1, 9))


@given(st.lists(STEP, max_size=80))
def test_each_notice_is_counted_in_one_message_and_messages_of_a_kind_keep_their_distance(
    steps: list[tuple[int, str, str, int, int]],
) -> None:
    outbox, now = Outbox(), 0
    added: dict[tuple[str, str], int] = {}
    for pause, kind, vhost, key, letters in steps:
        now += pause
        outbox.close_batches(now, now)
        parked = letters if kind == "letter.parked" else None
        outbox.add(notice(str(key), kind, vhost, parked), now)
        added[kind, vhost] = added.get((kind, vhost), 0) + (parked or 1)
    outbox.close_batches(now + INTERVAL_MS, now + INTERVAL_MS)
    sums: dict[tuple[str, str], int] = {}
    times: dict[tuple[str, str], int] = {}
    while (entry := outbox.next(now + INTERVAL_MS)) is not None:
        message = entry.message
        outbox.taken(message.id)
        about = message.kind, message.vhost
        assert message.ts_ms - times.get(about, -INTERVAL_MS) >= INTERVAL_MS
        assert len(message.items) == min(MAX_ITEMS, len(entry.keys))
        sums[about], times[about] = sums.get(about, 0) + message.count, message.ts_ms
    assert sums == added


def test_letters_of_one_key_are_summed() -> None:
    outbox = Outbox()
    for letters in (3, 4):
        outbox.add(notice(kind="letter.parked", letters=letters), 0)
    outbox.close_batches(INTERVAL_MS, 0)
    entry = outbox.next(INTERVAL_MS)
    assert entry is not None
    assert entry.message.items == ({"failed_queue": "q", "letters": 7},)


def test_one_that_failed_is_tried_later_and_others_go_before_it() -> None:
    outbox = filled("a", "b")
    fail(outbox, 0)
    assert sent(outbox, 0) is None, "the endpoint rests"
    assert sent(outbox, 1_000) == "b"
    outbox.drop("b")
    assert sent(outbox, 4_999) is None
    assert sent(outbox, 5_000) == "a"


def test_what_a_receiver_asks_for_is_for_all_that_waits_for_it_up_to_an_hour() -> None:
    """A chat that says "too many requests" is not asked by the next message a second later."""
    outbox = filled("a", "b")
    fail(outbox, 0, asked_ms=30_000)
    assert (sent(outbox, 29_999), sent(outbox, 30_000)) == (None, "b")
    fail(outbox, 30_000, asked_ms=10**12)
    assert sent(outbox, 30_000 + LONGEST_PAUSE_MS - 1) is None
    assert sent(outbox, 30_000 + LONGEST_PAUSE_MS) is not None


def test_a_message_is_given_up_after_a_day_and_the_oldest_goes_where_too_many_wait() -> None:
    outbox = filled("a")
    assert (outbox.expired(GIVE_UP_MS - 1), outbox.expired(GIVE_UP_MS), len(outbox)) == (0, 1, 0)
    outbox = filled(*map(str, range(MAX_WAITING + 3)))
    assert (outbox.overflowed(), len(outbox), sent(outbox, 0)) == (3, MAX_WAITING, "3")


@given(st.integers(1, 60), st.floats(0, 1))
def test_however_many_wait_a_dead_endpoint_is_asked_seldom_and_not_for_ever(waiting: int, draw: float) -> None:
    outbox, now, asked = filled(*map(str, range(waiting))), 0, 0
    while now < 1_200_000:
        if (entry := outbox.next(now)) is not None:
            asked += 1
            outbox.failed(entry.message.id, now, draw)
        now += 1000
    assert 6 <= asked <= 6 + 20
