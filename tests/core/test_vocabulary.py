"""What is spelled once: reasons as metrics count them, states of a breaker, names of guards and delayed queues."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.breaker import LONGEST_WAIT_MS, Breaker, QueueBreaker
from dlx_router.core.letter import Props
from dlx_router.core.limits import Outage
from dlx_router.core.names import MAX_NAME_BYTES, Names
from dlx_router.core.outcome import Forward
from dlx_router.core.publication import Way, to_relayed
from dlx_router.core.record import encode, properties_of
from dlx_router.core.remembered import decode
from dlx_router.core.words import BROKER_REASONS, OTHER, counted
from tests.core.core_samples import KEY, amqp_text, death, law, queues, record

# Reasons


@pytest.mark.parametrize("reason", [*sorted(BROKER_REASONS), "unknown", "application"])
def test_reasons_that_we_know_are_counted_by_themselves(reason: str) -> None:
    assert counted(reason) == reason


def test_what_applications_say_is_counted_as_one_because_they_may_say_anything() -> None:
    assert counted("application:card.declined") == counted("application:\udcff") == "application"


@pytest.mark.parametrize("reason", ["", "Rejected", "rejected ", "applications", "xapplication:a", OTHER, "\udcff"])
def test_what_any_publisher_may_write_is_counted_together(reason: str) -> None:
    assert counted(reason) == OTHER


# Breakers


@pytest.mark.parametrize(("state", "badness"), [("closed", 0), ("half_open", 1), ("open", 2), ("probe", 2)])
def test_the_worse_a_breaker_stands_the_higher_its_number(state: str, badness: int) -> None:
    assert Breaker.badness(state) == badness


def test_a_word_that_is_no_state_has_no_badness() -> None:
    with pytest.raises(ValueError, match="ajar"):
        Breaker.badness("ajar")


@pytest.mark.parametrize(("elapsed", "state"), [(LONGEST_WAIT_MS, Breaker.OPEN), (LONGEST_WAIT_MS + 1, Breaker.PROBE)])
def test_a_probe_that_is_stuck_behind_others_lets_another_try_after_the_longest_wait(
    elapsed: int, state: Breaker
) -> None:
    breaker = QueueBreaker(Outage(deaths=3, within_ms=10_000, probe_ms=5_000))
    breaker.ask("first", 0, deaths=3, tries=0)
    assert breaker.ask("stuck", 5_000, deaths=0, tries=1).state is Breaker.PROBE
    breaker.ask("crowd", 6_000, deaths=1_000, tries=0)
    assert breaker.state(5_000 + elapsed) is Breaker.OPEN
    assert breaker.ask("other", 5_000 + elapsed, deaths=0, tries=1).state is state


# Names


@pytest.mark.parametrize(
    ("exchange", "plain"),
    [("later", True), ("x" * 236, True), ("x" * 237, False), ("é" * 118, True), ("é" * 119, False)],
)
def test_a_delayed_queue_is_named_after_its_exchange_or_the_hash_of_it(
    exchange: str,
    plain: bool,  # noqa: FBT001 - a column of the table
) -> None:
    queue = Names().delayed(exchange)
    assert (queue == f"dlx-router.delayed.{exchange}") is plain
    assert len(queue.encode()) <= MAX_NAME_BYTES
    assert Names().is_delayed(queue)
    assert Names().is_own(queue)


def test_other_queues_of_ours_are_not_of_a_delayed_exchange() -> None:
    names = Names("eu")
    assert not any(map(names.is_delayed, (names.inbox, names.delay(100), names.guard("work"), "eu.delayed", "work")))
    assert not names.is_delayed(Names("us").delayed("later"))


@law
@given(queues)
def test_the_lock_of_a_guard_is_known_by_its_whole_name(queue: str) -> None:
    names, lock = Names("eu"), Names("eu").guard(queue)
    assert names.is_guard(lock)
    others = (f"{lock}0", lock[:-1], lock.upper(), f"{lock}\n", f"a{lock}", "eu.guard.parking", "eu.guard.", "eu.guard")
    assert not any(map(names.is_guard, (*others, Names("us").guard(queue), Names("eu").in_use(queue))))


@law
@given(st.lists(queues, min_size=2, max_size=4, unique=True))
def test_each_queue_has_a_guard_and_a_lock_of_its_own_that_are_ours(some: list[str]) -> None:
    names = [of(queue) for of in (Names("eu").guard, Names("eu").in_use) for queue in some]
    assert len(set(names)) == 2 * len(some)
    assert all(Names("eu").is_own(name) and len(name) < MAX_NAME_BYTES for name in names)
    assert names == [of(queue) for of in (Names("eu").guard, Names("eu").in_use) for queue in some], (
        "the same each time"
    )


# Publications


@pytest.mark.parametrize(("kept", "cc"), [(True, None), (False, ())])
def test_a_relayed_message_goes_on_as_it_came_but_for_a_policys_key(
    kept: bool,  # noqa: FBT001 - a column of the table
    cc: tuple[str, ...] | None,
) -> None:
    remembered = record(deaths=(death(routing_keys=("k", "copy")),), props=Props(priority=7, delivery_mode=1))
    sent = to_relayed(Forward("next", ("k", "copy"), kept=kept), remembered)
    assert (sent.way, sent.exchange, sent.routing_key, sent.cc, sent.bcc) == (Way.FORWARD, "next", "k", cc, None)
    assert (sent.priority, sent.delivery_mode, sent.needs_queue) == (7, 1, None), "nothing is set that was not"
    assert to_relayed(Forward("next", ("k",)), record(props=Props())).delivery_mode is None


# Properties in the record

texts = st.none() | amqp_text
small = st.none() | st.integers(0, 255)


@law
@given(st.builds(Props, texts, texts, texts, small, small))
def test_properties_from_bytes_are_written_as_the_record_writes_them(props: Props) -> None:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else text.encode(errors="surrogateescape")

    members: dict[str, Any] = props._asdict() | {"user_id": raw(props.user_id), "expiration": raw(props.expiration)}
    fragment = properties_of(
        members["message_id"], members["user_id"], members["expiration"], members["priority"], members["delivery_mode"]
    )
    written = encode(record(props=props, cc=None), KEY, 1 << 20)
    assert fragment.encode() in written
    assert bool(fragment) is (props != Props()) is (b'"props":' in written)
    assert decode(written, KEY).props == props
