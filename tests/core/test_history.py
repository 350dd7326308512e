"""The merge law: after n deaths at a queue its count is n and the newest is first, on every version and every mix."""
# ruff: noqa: FBT001 - tables and laws pass flags

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.history import fold, merge, uncut, without_own
from dlx_router.core.letter import Death, History
from dlx_router.core.outcome import DeadLetter, Retry
from dlx_router.core.record import encode
from dlx_router.core.remembered import decode
from dlx_router.core.words import Cause
from tests.core.core_brokers import INBOX, RETURN, Version, World
from tests.core.core_samples import KEY, arrived, death, hard_law, histories, is_own, law, record

a, b, c = death("a", time_s=10), death("b", time_s=20), death("c", time_s=30)


def times(entry: Death, count: int) -> Death:
    return entry._replace(times=count)


@pytest.mark.parametrize(
    ("broker", "known", "native", "merged", "fresh"),
    [
        pytest.param((), (), True, (), (), id="nothing at all"),
        pytest.param((a,), (), True, (a,), (a,), id="no record: the broker's word"),
        pytest.param((), (a,), True, (a,), (), id="4.x after a wait: the record's word"),
        pytest.param((a,), (a,), False, (a,), (), id="equal, published: no death"),
        pytest.param((a,), (a,), True, (times(a, 2),), (a,), id="equal, single, native: one more"),
        pytest.param((b, a), (b, a), True, (b, a), (), id="equal, several: no death though native"),
        pytest.param((a, b), (b, a), False, (b, a), (), id="equal in another order: the record's order"),
        pytest.param((times(a, 2),), (a,), True, (times(a, 2),), (a,), id="3.10 counts on"),
        pytest.param((b, a), (a,), True, (b, a), (b,), id="3.10 prepends"),
        pytest.param((c, a, b), (b, a), True, (c, b, a), (c,), id="3.10 reverses the tail"),
        pytest.param(
            (times(a, 3), b), (b, a), True, (times(a, 3), b), (times(a, 2),), id="3.10 twice at a known place"
        ),
        pytest.param(
            (a._replace(time_s=40),), (times(a, 2),), True, (times(a, 3),), (a._replace(time_s=40),), id="4.x anew"
        ),
        pytest.param((a,), (times(a, 2),), True, (times(a, 3),), (a,), id="4.x anew in the second of the first death"),
        pytest.param((b,), (a,), True, (b, a), (b,), id="4.x anew elsewhere"),
        pytest.param(
            (c, b._replace(time_s=40)),
            (b, a),
            True,
            (c, times(b, 2), a),
            (c, b._replace(time_s=40)),
            id="4.x anew, two deaths",
        ),
    ],
)
def test_the_broker_and_the_record_together_tell_every_death_once(
    broker: History, known: History, native: bool, merged: History, fresh: History
) -> None:
    assert merge(broker, known, native=native) == (merged, fresh)


def test_waits_in_our_own_queues_are_no_deaths() -> None:
    assert without_own((death("dlx-router.delay.1000", "expired"), a), is_own) == (a,)


@law
@given(histories)
def test_folding_twice_changes_nothing_and_folding_loses_no_death(history: History) -> None:
    doubled = fold(history + history)
    assert fold(doubled) == doubled
    assert sum(entry.times for entry in doubled) == 2 * sum(entry.times for entry in history)


@law
@given(histories, histories, st.booleans())
def test_merging_never_loses_a_death_of_the_record_and_never_doubles_an_entry(
    broker: History, known: History, native: bool
) -> None:
    merged = {entry.key: entry.times for entry in merge(broker, known, native=native).history}
    assert len(merged) == len(merge(broker, known, native=native).history)
    assert all(merged[entry.key] >= entry.times for entry in (*known, *broker))


@law
@given(histories)
def test_an_x_death_that_came_back_unchanged_tells_no_new_death(history: History) -> None:
    assert merge(history[::-1], history, native=False) == (history, ())


# Whole lives of letters


@dataclass(frozen=True)
class Stretch:
    """Between two visits to the router: on one broker, the letter waits or not, then dies once or more."""

    version: Version
    pause_s: int
    waits: bool
    deaths: tuple[tuple[str, str, int], ...]  # queue, reason, seconds before it


QUEUES, REASONS = ("a", "b", "c", "d"), ("rejected", "expired", "delivery_limit")


def stretches(versions: tuple[Version, ...], most: int) -> st.SearchStrategy[list[Stretch]]:
    entry = st.tuples(st.sampled_from(QUEUES), st.sampled_from(REASONS), st.integers(1, 3))
    return st.lists(
        st.builds(
            Stretch,
            st.sampled_from(versions),
            st.integers(0, 2),
            st.booleans(),
            st.lists(entry, min_size=1, max_size=most).map(tuple),
        ),
        min_size=1,
        max_size=6,
    )


def live(life: list[Stretch], *, exact_order: bool) -> None:
    """A letter's life; the first death after a return is at the failed queue, as it must be."""
    world, seen = World(), 0
    for stretch in life:
        world.clock_s += stretch.pause_s
        if world.record is not None and stretch.waits:
            assert world.waits(stretch.version).fresh == ()
        for at, (queue, reason, pause_s) in enumerate(stretch.deaths):
            world.clock_s += pause_s if at else 0
            place = world.record.failed_queue if world.record is not None and not at else queue
            last = at == len(stretch.deaths) - 1
            world.native_death(stretch.version, place, reason, INBOX if last else "native.dlx")
        letter = world.read()
        assert letter.history[0] == world.truth.history[0]
        assert set(letter.history) == set(world.truth.history)
        if exact_order:
            assert letter.history == world.truth.history
        counts = {
            queue: sum(entry.times for entry in letter.history if entry.queue == queue) for queue in world.truth.total
        }
        assert counts == world.truth.total
        assert sum(entry.times for entry in letter.fresh) == sum(counts.values()) - seen
        seen = sum(counts.values())
        world.publish(letter, Retry(0, 0, 1))


@hard_law
@given(stretches(("3.10", "4"), most=1))
def test_after_n_deaths_the_count_is_n_and_the_newest_is_first_on_any_mix_of_versions(life: list[Stretch]) -> None:
    live(life, exact_order=True)


@hard_law
@given(stretches(("4",), most=3))
def test_a_4_x_broker_may_go_on_natively_between_two_visits(life: list[Stretch]) -> None:
    live(life, exact_order=True)


@hard_law
@given(stretches(("3.10", "4"), most=3))
def test_when_3_10_goes_on_natively_the_counts_and_the_newest_are_right_whatever_the_tail(life: list[Stretch]) -> None:
    live(life, exact_order=False)


@pytest.mark.parametrize(
    "versions", [("3.10",) * 5, ("4",) * 5, ("3.10", "4", "3.10", "4", "4"), ("4", "3.10", "3.10", "4", "3.10")]
)
def test_five_rejections_within_one_second_are_five(versions: tuple[Version, ...]) -> None:
    world = World()
    for count, version in enumerate(versions, 1):
        world.native_death(version, "work", "rejected")
        letter = world.read()
        assert [entry.times for entry in letter.history] == [count]
        assert sum(entry.times for entry in letter.fresh) == 1
        world.publish(letter, Retry(0, 0, count))


def test_the_end_of_a_wait_is_no_death_though_3_10_still_shows_the_single_entry() -> None:
    world = World()
    world.native_death("3.10", "work", "rejected")
    world.publish(world.read(), Retry(0, 0, 1))
    released = world.waits("3.10")
    assert (released.history[0].times, released.fresh) == (1, ())
    world.native_death("3.10", "work", "rejected")
    assert world.read().history[0].times == 2


def test_a_4_x_broker_that_began_anew_is_known_by_our_exchange_even_in_the_same_second() -> None:
    world = World()
    world.native_death("4", "work", "rejected")
    world.publish(world.read(), Retry(0, 0, 1))
    world.native_death("4", "work", "rejected", "native.dlx")
    world.native_death("4", "other", "rejected")
    letter = world.read()
    assert [(entry.queue, entry.times) for entry in letter.history] == [("other", 1), ("work", 2)]
    assert all(not is_own(entry.exchange) for entry in letter.history)


@pytest.mark.parametrize("version", ["3.10", "4"])
def test_rounds_by_a_native_hop_and_an_exchange_of_the_policy_count_each_death_even_in_the_same_second(
    version: Version,
) -> None:
    world = World()
    for count in range(1, 5):
        world.native_death(version, "work", "rejected", "native.dlx")
        world.native_death(version, "hop", "expired")
        letter = world.read()
        assert [(entry.queue, entry.times) for entry in letter.history] == [("hop", count), ("work", count)]
        assert letter.history == world.truth.history
        world.publish(letter, DeadLetter("round", ("order.created",), 0, Cause.NEVER_RETRY), "round")


def test_a_final_copy_that_dies_in_its_dead_letter_queue_keeps_its_history_on_4_x() -> None:
    world = World()
    world.native_death("4", "work", "rejected")
    world.publish(world.read(), DeadLetter("dlx", ("k",), 1, Cause.ATTEMPTS_SPENT), "dlx")
    world.clock_s += 5
    world.native_death("4", "dead", "expired")
    assert [(entry.queue, entry.exchange) for entry in world.read().history] == [("dead", "dlx"), ("work", "shop")]


# What had to be cut


def long_history(count: int) -> History:
    return tuple(death(f"queue-{n}", time_s=1000 - n, exchange=f"exchange-{n}") for n in range(count))


def test_a_cut_record_does_not_take_what_it_forgot_for_new_deaths() -> None:
    full = long_history(30)
    cut = decode(encode(record(deaths=full, failed_queue="queue-0"), KEY, 1024), KEY)
    assert cut.cut
    assert len(cut.deaths) < 30
    unchanged = arrived(full, cut, native=False)
    assert unchanged.fresh == ()
    assert unchanged.history == full
    letter = arrived((times(full[0], 2), *full[:0:-1]), cut)
    assert letter.fresh == (full[0],)
    assert letter.history[0] == times(full[0], 2)
    assert set(letter.history[1:]) == set(full[1:])


@pytest.mark.parametrize(
    ("broker", "known", "merged", "fresh"),
    [
        pytest.param((a, b, c), (a,), (a, b, c), (), id="only the newest was kept: the broker tells the rest"),
        pytest.param((a, b, c), (a, c), (a, b, c), (), id="the newest and the first were kept"),
        pytest.param((a, c), (c, a), (c, a), (), id="nothing was lost after all: the record's order"),
        pytest.param((b, a), (a,), (b, a), (b,), id="an unknown newest is a new death"),
        pytest.param((times(a, 2), b), (a,), (times(a, 2), b), (a,), id="the newest again"),
        pytest.param((b, times(a, 2)), (a,), (b, times(a, 2)), (b, a), id="two new deaths"),
    ],
)
def test_the_broker_fills_up_what_a_record_lost(
    broker: History, known: History, merged: History, fresh: History
) -> None:
    assert merge(broker, known, native=False, cut=True) == (merged, fresh)


@pytest.mark.parametrize(
    ("broker", "known", "cut", "history"),
    [
        pytest.param((a, b, c), (a,), True, (a, b, c), id="only the newest was kept: the broker tells the rest"),
        pytest.param((a, b, c), (a, c), True, (a, b, c), id="the newest and the first were kept"),
        pytest.param((a, b, c), (a,), False, (a,), id="nothing was lost: what more there is nobody died of"),
        pytest.param((b, a), (a,), True, (a,), id="another newest: no letter dies there"),
        pytest.param((a, b), (times(a, 2),), True, (times(a, 2),), id="another count: no letter dies there"),
        pytest.param((a,), (a, b), True, (a, b), id="the record knows more"),
        pytest.param((), (a,), True, (a,), id="the broker tells nothing"),
        pytest.param((a, b), (), True, (), id="it never died"),
    ],
)
def test_where_nothing_dies_the_broker_only_fills_up_what_a_record_lost(
    broker: History, known: History, cut: bool, history: History
) -> None:
    assert uncut(broker, known, cut=cut) == (history, ())


def test_a_death_elsewhere_after_a_cut_record_is_one_new_death() -> None:
    full = long_history(30)
    cut = decode(encode(record(deaths=full, failed_queue="queue-0"), KEY, 1024), KEY)
    new = death("elsewhere", time_s=2000)
    letter = arrived((new, *full), cut)
    assert (letter.fresh, letter.history[0], len(letter.history)) == ((new,), new, 31)


def test_an_x_death_that_was_cut_to_eight_entries_is_still_continued() -> None:
    known = long_history(11)
    shown = (times(known[3], 2), *(entry for entry in known[:8] if entry is not known[3]))
    assert len(shown) == 8
    merged = merge(shown, known, native=True)
    assert merged.fresh == (known[3],)
    assert [entry.times for entry in merged.history] == [2] + [1] * 10
    assert merge(known[:8], known, native=False) == (known, ())


def test_keys_that_a_cut_record_lost_are_learnt_again_from_the_broker() -> None:
    lost = replace(record(), deaths=(death(routing_keys=("k",)),), cut=True)
    shown = (death(times=2, routing_keys=("k", "cc.one", "cc.two")),)
    assert arrived(shown, lost).history == (death(times=2, routing_keys=("k", "cc.one", "cc.two")),)
    anew = (death(time_s=99, exchange=RETURN, routing_keys=("k", "cc.one")),)
    assert arrived(anew, lost).history == (death(times=2, routing_keys=("k", "cc.one")),)
