"""Arrival: from what the broker shows and what we remember to a letter: attempts, redrives, loops, first origin."""
# ruff: noqa: FBT001 - tables and laws pass flags

from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.arrival import read
from dlx_router.core.decision import attempts_of, decide
from dlx_router.core.letter import PLAIN_BODY_BYTES, Arrival, Death, First, History, LetterIds, letter_id, letter_id_of
from dlx_router.core.outcome import Decision, Park, Retry
from dlx_router.core.publication import record_of, redriven
from dlx_router.core.record import Record
from tests.core.core_brokers import World
from tests.core.core_samples import (
    CONTENT,
    NOW,
    amqp_text,
    arrived,
    death,
    effective,
    facts,
    firsts,
    histories,
    is_own,
    law,
    record,
)

EVERYTHING = effective(max_delivery_attempts=-1)
TWICE = death(times=2)
AGAIN = death(time_s=NOW // 1000 + 60)  # as 4.x tells a later death


def attempts(deaths: History, remembered: Record | None = None, **fields: object) -> int:
    return attempts_of(arrived(deaths, remembered, **fields), EVERYTHING)


@pytest.mark.parametrize(
    ("deaths", "remembered", "expected"),
    [
        pytest.param((death(),), None, 1, id="fresh letter"),
        pytest.param((death(times=4),), None, 4, id="without a record at the broker's count"),
        pytest.param((death(reason="expired"),), None, 0, id="a reason that is not in retry-on"),
        pytest.param((death(reason="expired"), death(times=2)), None, 2, id="only the reasons in retry-on"),
        pytest.param((death(reason="delivery_limit"),), None, 1, id="delivery_limit counts one"),
        pytest.param((death(), death("other", times=3)), None, 1, id="only the failed queue"),
        pytest.param((TWICE,), record(), 2, id="after a retry, 3.10"),
        pytest.param((AGAIN,), record(), 2, id="after a retry, 4.x"),
        pytest.param((death(),), record(), 2, id="after a retry, 4.x, the same second"),
        pytest.param((TWICE,), record(state="dead", attempts=10), 1, id="redriven, 3.10"),
        pytest.param((AGAIN,), record(state="dead", attempts=10), 1, id="redriven, 4.x"),
        pytest.param((AGAIN,), record(state="parked", attempts=3), 1, id="redriven from parking"),
        pytest.param((death("next", time_s=5), death()), record(attempts=7), 1, id="dead elsewhere, 3.10"),
        pytest.param((death("next"),), record(attempts=7), 1, id="dead elsewhere, 4.x"),
        pytest.param(
            (AGAIN,), record(failed_queue="next", deaths=(death("next"), death())), 1, id="back after elsewhere"
        ),
        pytest.param((death(reason="delivery_limit"), death()), record(), 2, id="delivery_limit after a retry, 3.10"),
        pytest.param(
            (death(reason="expired"), death()), record(attempts=1), 1, id="expired after a retry uses no attempt"
        ),
    ],
)
def test_attempts_are_failures_since_the_letter_last_came_other_than_by_our_retry(
    deaths: History, remembered: Record | None, expected: int
) -> None:
    assert attempts(deaths, remembered) == expected


@pytest.mark.parametrize(
    ("deaths", "expected"),
    [
        pytest.param((death(times=4),), 1, id="3.10 continues the copied x-death"),
        pytest.param((AGAIN,), 1, id="4.x begins anew"),
        pytest.param((death("next"), death(times=3)), 1, id="dead at another queue, 3.10"),
        pytest.param((death(times=5),), 2, id="twice since"),
    ],
)
def test_a_copied_record_lends_its_count_to_nobody(deaths: History, expected: int) -> None:
    letter = arrived(deaths, record(deaths=(death(times=3),), attempts=3), belongs=False)
    assert attempts_of(letter, EVERYTHING) == expected
    assert (letter.id, letter.parent, letter.redrives, letter.state) == (f"new:{deaths[0].queue}", "ab" * 16, 0, None)
    assert letter.history == deaths


def test_a_copy_of_record_and_x_death_that_did_not_die_has_failed_no_time() -> None:
    copied = record(deaths=(death(times=3),), attempts=3)
    assert attempts((death(times=3),), copied, belongs=False, native=False) == 0


@pytest.mark.parametrize("version", ["3.10", "4"])
def test_a_letter_gets_exactly_as_many_deliveries_as_the_policy_says(version: str) -> None:
    world, policy = World(), effective(max_delivery_attempts=5)
    for delivery in range(1, 6):
        world.clock_s += 1
        world.native_death(version, "work", "rejected")  # type: ignore[arg-type]  # parametrised
        letter = world.read()
        decision = decide(letter, policy, world.clock_s * 1000, 0.0)
        assert decision.attempts == delivery
        assert isinstance(decision, Retry) is (delivery < 5)
        world.publish(letter, decision, "dlx")


# Loops, cycles, redrives


def judged(deaths: History, remembered: Record | None, **fields: object) -> Decision:
    policy = effective(max_delivery_attempts=1, max_redrives=2)
    return decide(arrived(deaths, remembered, **fields), policy, NOW, 0.0)


DEAD = record(state="dead", attempts=1, cause="attempts_spent")
EXPIRED = death(reason="expired", time_s=NOW // 1000 + 9)


@pytest.mark.parametrize(
    ("deaths", "remembered", "cause"),
    [
        pytest.param(
            (death(), death("b")), record(deaths=(death(), death("b"))), "loop", id="back without a new death"
        ),
        pytest.param((), record(), "loop", id="back with nothing but the record"),
        pytest.param((), record(state="parked"), "loop", id="parked, published to the inbox by hand"),
        pytest.param((AGAIN,), DEAD, "attempts_spent", id="redriven by hand, rejected"),
        pytest.param((EXPIRED,), DEAD, "cycle", id="expired again without a rejection since"),
        pytest.param((EXPIRED, death("b", "expired")), DEAD, "cycle", id="a cycle of expiry through another queue"),
        pytest.param((EXPIRED, death("b")), DEAD, "never_retry", id="rejected elsewhere since: no cycle"),
        pytest.param(
            (EXPIRED,),
            record(state="dead", failed_queue="b", deaths=(death("b"), death())),
            "never_retry",
            id="rejected since that queue's earlier death",
        ),
        pytest.param(
            (EXPIRED,),
            record(state="dead", failed_queue="b", deaths=(death("b", "expired"), death("work", "expired"))),
            "cycle",
            id="two queues that expire into each other",
        ),
        pytest.param((AGAIN,), record(state="dead", redrives=1), "redrive_exhausted", id="redriven twice of two"),
        pytest.param((AGAIN,), record(state="dead", redrives=9), "redrive_exhausted", id="redriven too often"),
        pytest.param((death("chain"),), DEAD, "attempts_spent", id="a chain: dead where it never was"),
        pytest.param((death("chain", "expired"),), DEAD, "never_retry", id="a chain by expiry"),
    ],
)
def test_what_comes_back_is_told_apart(deaths: History, remembered: Record, cause: str) -> None:
    assert judged(deaths, remembered).cause == cause


@pytest.mark.parametrize("shown", [(), (death(),), (TWICE,), (AGAIN,), (death("next"), death())])
def test_what_is_only_looked_at_has_not_died_again_whatever_its_x_death_shows(shown: History) -> None:
    """It lies in the queue where its record says that it went; there is no death that its record does not know."""
    letter = arrived(shown, record(state="dead", attempts=7), rests=True)
    assert (letter.history, letter.fresh, letter.failed_queue) == ((death(),), (), "work")
    assert (letter.first_death_ms, letter.last_death_ms) == (NOW, NOW)


def test_a_redrive_is_counted_and_a_chain_is_not() -> None:
    assert arrived((AGAIN,), DEAD).redrives == 1
    assert arrived((death("chain"),), DEAD).redrives == 0
    assert arrived((AGAIN,), record()).redrives == 0
    assert arrived((EXPIRED,), DEAD).redrives == 0


def test_a_redrive_starts_the_time_of_a_letter_anew_and_the_deaths_that_follow_do_not() -> None:
    """It died yesterday, is sent back by a task, and fails again: what `redelivery-max-elapsed` promises holds."""
    policy = effective(max_delivery_attempts=5, redelivery_max_elapsed=10_000)
    yesterday = record(state="dead", attempts=5, redrives=1, first_death_ms=NOW - 86_400_000)
    sent = redriven(arrived((death(),), yesterday, rests=True), CONTENT, policy="", revision="", redrive_id="task")
    remembered, seen = sent, list[tuple[str | None, int, int]]()
    for count, now in enumerate((NOW, NOW + 10_000, NOW + 10_001), start=2):
        letter = arrived((death(times=count),), remembered, now_ms=now)
        decision = decide(letter, policy, now, 0.0)
        remembered = record_of(letter, decision, CONTENT, policy="", revision="")
        seen.append((decision.cause, decision.attempts, letter.since_ms))
    assert seen == [(None, 1, NOW), (None, 2, NOW), ("max_elapsed", 3, NOW)]
    assert arrived((death(),), sent, rests=True).since_ms == 0, "it has not died since"


def test_a_letter_that_never_died_is_of_unknown_origin_and_nothing_is_invented() -> None:
    letter = arrived((), source="legacy.failed", exchange="", native=False)
    assert (letter.reason, letter.failed_queue, letter.history, letter.first) == ("unknown", "legacy.failed", (), None)
    assert (letter.first_death_ms, letter.last_death_ms) == (NOW, NOW)


# What is carried, what is cleaned


def test_what_the_record_knows_is_carried() -> None:
    kept = record(
        tries=3,
        state="held",
        cause="target_refused",
        due_ms=NOW + 5,
        parent="cd" * 16,
        error={"type": "E"},
        shadowed={"a": "b"},
    )
    letter = arrived((), kept, arrival=Arrival.RELEASE)
    assert (letter.tries, letter.state, letter.cause, letter.due_ms) == (3, "held", "target_refused", NOW + 5)
    assert (letter.parent, letter.error, letter.shadowed) == ("cd" * 16, {"type": "E"}, {"a": "b"})
    assert letter.header("anything") is None


def test_a_new_death_ends_the_holding_and_moves_the_time_of_the_last() -> None:
    letter = arrived((AGAIN,), record(tries=3, first_death_ms=1, last_death_ms=2))
    assert (letter.tries, letter.first_death_ms, letter.last_death_ms) == (0, 1, NOW)
    assert arrived((), record(tries=3, last_death_ms=2)).last_death_ms == 2


def test_our_exchanges_never_stay_in_an_entry() -> None:
    back = death(reason="expired", exchange="dlx-router.return")
    assert [entry.exchange for entry in arrived((back,), record()).history] == ["shop", "shop"]
    stranger = death("elsewhere", exchange="dlx-router.return")
    assert [entry.exchange for entry in arrived((stranger,), record()).history] == ["", "shop"]
    assert arrived((back,)).history == (back._replace(exchange=""),)


SAID = First("work", "shop", (), "rejected")


@pytest.mark.parametrize(
    ("deaths", "said", "first"),
    [
        pytest.param((death(),), SAID, ("work", "shop", "rejected"), id="as the broker says"),
        pytest.param(
            (death("b", time_s=9), death()), SAID, ("work", "shop", "rejected"), id="though another time is earlier"
        ),
        pytest.param(
            (death("b", time_s=9), death(time_s=5)), None, ("work", "shop", "rejected"), id="else the earliest"
        ),
        pytest.param(
            (death("b", time_s=5), death(time_s=5)), None, ("work", "shop", "rejected"), id="among equals the oldest"
        ),
        pytest.param((death("b"),), SAID, ("b", "shop", "rejected"), id="not about a death that nobody knows"),
        pytest.param(
            (death(),),
            SAID._replace(exchange="dlx-router.return"),
            ("work", "shop", "rejected"),
            id="never an own exchange",
        ),
    ],
)
def test_the_first_origin(deaths: History, said: First | None, first: tuple[str, str, str]) -> None:
    origin = arrived(deaths, first=said).first
    assert origin is not None
    assert (origin.queue, origin.exchange, origin.reason) == first
    assert origin.routing_keys == ("order.created",)


def test_the_first_origin_is_carried_and_learnt_late_where_the_record_has_none() -> None:
    origin = First("first", "x", ("k",), "maxlen")
    assert arrived((AGAIN,), record(first=origin)).first == origin
    late = arrived((death(),), record(first=None, deaths=(), state="dead")).first
    assert late == First("work", "shop", ("order.created",), "rejected")


clean = histories.map(lambda all_: tuple(entry._replace(exchange="x") for entry in all_ if not is_own(entry.queue)))
remembered_states = st.builds(  # we never write our own names
    record,
    state=st.sampled_from(["retrying", "dead", "parked", "held"]),
    deaths=clean,
    attempts=st.integers(0, 99),
    failed_queue=st.sampled_from(["work", "other", "é"]),
    redrives=st.integers(0, 9),
    cut=st.booleans(),
    first=st.none() | firsts,
)


@law
@given(
    histories,
    st.none() | remembered_states,
    st.booleans(),
    st.booleans(),
    st.sampled_from(Arrival),
    st.none() | firsts,
    amqp_text,
)
def test_reading_is_total_and_keeps_the_count_of_everything_it_knew(  # noqa: PLR0917 - a law over all that a delivery may say
    shown: History,
    remembered: Record | None,
    belongs: bool,
    native: bool,
    arrival: Arrival,
    declared: First | None,
    source: str,
) -> None:
    letter = arrived(
        shown,
        remembered,
        belongs=belongs and remembered is not None,
        native=native,
        arrival=arrival,
        first=declared,
        source=source,
    )
    keys = [entry.key for entry in letter.history]
    assert len(keys) == len(set(keys))
    assert not any(is_own(entry.queue) or is_own(entry.exchange) for entry in letter.history)
    assert {entry.key for entry in letter.fresh} <= set(keys)
    assert letter.failed_queue == (keys[0][0] if keys else letter.failed_queue)
    assert attempts_of(letter, EVERYTHING) >= letter.base_attempts >= 0


def test_an_id_is_asked_for_only_for_a_new_letter() -> None:
    asked: list[str] = []

    def new_id(queue: str) -> str:
        asked.append(queue)
        return "new"

    assert read(facts((AGAIN,), record()), is_own, new_id).id == "ab" * 16
    assert asked == []
    assert read(facts((death("b"),)), is_own, new_id).id == "new"
    assert asked == ["b"]


# The id

PARTS: tuple[str, str, bytes, bytes, bytes, bytes, bytes] = (
    "/",
    "work",
    b"shop",
    b"key",
    b"props",
    b"headers",
    b"body",
)


def test_the_id_is_32_hex_digits_and_the_same_after_a_crash() -> None:
    assert letter_id(*PARTS) == letter_id(*PARTS)
    assert len(bytes.fromhex(letter_id(*PARTS))) == 16


@pytest.mark.parametrize(
    "move",
    [
        lambda p: (*p[:2], p[2] + p[3][:1], p[3][1:], *p[4:]),
        lambda p: (*p[:4], b"prop", b"sheaders", p[6]),
        lambda p: ("/w", "ork", *p[2:]),
    ],
)
def test_no_bytes_may_move_from_one_part_to_the_next(move: Callable[[tuple[object, ...]], tuple[object, ...]]) -> None:
    assert letter_id(*move(PARTS)) != letter_id(*PARTS)  # type: ignore[arg-type]  # parts of several types, in their order


@pytest.mark.parametrize("size", [1, PLAIN_BODY_BYTES, PLAIN_BODY_BYTES + 1, 70_000, 1 << 20])
def test_every_byte_of_a_body_makes_another_id(size: int) -> None:
    body = bytes(size)
    others = [body[:at] + b"x" + body[at + 1 :] for at in sorted({0, size // 2, size - 1})]
    ids = {letter_id(*PARTS[:6], other) for other in (body, body + b"\0", *others)}
    assert len(ids) == 2 + len(others)


names = st.binary(max_size=8)


@law
@given(
    st.tuples(names, names, names, names),
    st.binary(max_size=12),
    st.tuples(st.integers(0, 6), st.integers(0, 9)),
    st.lists(st.binary(max_size=5) | st.integers(-2, 2).map(lambda more: b"x" * (PLAIN_BODY_BYTES + more)), min_size=1),
    st.data(),
)
def test_ids_that_are_begun_together_are_those_of_each_alone(
    where: tuple[bytes, bytes, bytes, bytes],
    common: bytes,
    lengths: tuple[int, int],
    bodies: list[bytes],
    data: st.DataObject,
) -> None:
    ids = LetterIds(where, common, *lengths)
    for body in bodies:
        rest, headers = (data.draw(st.binary(min_size=length, max_size=length)) for length in lengths)
        digest = ids.begin() if len(body) == ids.size else ids.of_size(len(body))()
        digest.update(rest + headers + (body if len(body) <= PLAIN_BODY_BYTES else sha256(body).digest()))
        assert digest.hexdigest() == letter_id_of(*where, common + rest, headers, body)


def test_a_park_without_policy_keeps_the_attempts_so_far() -> None:
    assert decide(arrived((), record(attempts=4)), None, NOW, 0.0) == Park("loop", 4)  # type: ignore[arg-type]  # no policy: it ends before
    assert Death("q", "r", 1, 0, "", ()).key == ("q", "r")
