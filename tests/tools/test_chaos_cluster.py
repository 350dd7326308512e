"""The judges of `make chaos-cluster`: books, attribution, laws, draw and page. No broker: the run takes minutes.

A judge that sees nothing finds nothing wrong, so each is shown what it has to see.
"""

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.chaos.cluster.accounting import CLASSIC, CONSUMER, ENDS, NAMED, QUORUM, WAYS, Books, Lost, Way, body_of
from tools.chaos.cluster.attribution import BROKER, ROUTER, UNDECIDED, Troubles, attributed
from tools.chaos.cluster.faults import Fault
from tools.chaos.cluster.invariants import DeadLetterStages, Readiness, Sample, Stage, Stages, Stand, Standstills
from tools.chaos.cluster.partition import Held, Partition, Silence, beside, outside, partitions, silences
from tools.chaos.cluster.report import PartReport, Report, Row, as_json, markdown
from tools.chaos.cluster.schedule import (
    KILLED,
    KINDS,
    NODES,
    PARTS,
    PAUSED_LONG,
    ROUTER_KILLED,
    ROUTERS,
    TWO_PAUSED,
    Drawn,
    drawn,
)
from tools.chaos.page_sections import with_all_but, with_section

QUORUM_WAY = QUORUM[0]
CLASSIC_WAY = NAMED["dead.classic.1"]
RETRY_WAY = NAMED["retry.classic.1"]
NOBODY: dict[Way, float | None] = dict.fromkeys(WAYS)


def filled(*, skip: tuple[int, ...] = ()) -> Books:
    books = Books()
    for way in WAYS * 3:
        number = books.next(way)
        books.confirm(number, 100.0 + number)
        if number not in skip:
            books.find(ENDS, body_of(way, number))
    return books


# -- books ------------------------------------------------------------------------------------------------------------


def test_books_in_which_everything_was_found_lost_nothing() -> None:
    books = filled()
    assert (books.lost(), books.duplicates(), books.in_doubt(), books.refused, books.foreign) == ([], 0, 0, 0, [])
    assert [books.confirmed(way) for way in WAYS] == [3] * len(WAYS)


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_a_letter_that_is_nowhere_is_lost_with_its_way_and_time(number: int) -> None:
    assert filled(skip=(number,)).lost() == [Lost(number, WAYS[number], 100.0 + number)]


def test_a_letter_in_any_place_is_found() -> None:
    books = filled(skip=(4,))
    books.find("dlx-router.parking", body_of(WAYS[4], 4))
    assert books.lost() == []
    assert books.places[WAYS[4].source, "dlx-router.parking"] == 1


def test_what_was_returned_nacked_or_never_answered_is_no_letter() -> None:
    books = Books()
    returned, nacked, _unanswered = (books.next(QUORUM_WAY) for _ in range(3))
    books.returned(returned)
    books.confirm(returned, 1.0)  # the broker confirms what it returned
    books.refuse(nacked)
    assert (books.lost(), books.refused, books.in_doubt(), books.confirmed(QUORUM_WAY)) == ([], 2, 1, 0)


def test_copies_are_counted_and_bodies_of_others_told() -> None:
    books = filled()
    books.find(CONSUMER, body_of(WAYS[0], 0))
    books.find(ENDS, b"dead.quorum:1")  # 1 is of another way
    books.find(ENDS, b"junk")
    assert books.duplicates() == 1
    assert len(books.foreign) == 2


def test_a_way_waits_since_its_first_letter_after_the_last_find() -> None:
    books = Books()
    first, second = books.next(QUORUM_WAY), books.next(QUORUM_WAY)
    books.confirm(first, 10.0)
    books.confirm(second, 20.0)
    assert books.waits[QUORUM_WAY] == 10.0
    books.find(ENDS, body_of(QUORUM_WAY, first))
    assert books.waits[QUORUM_WAY] is None
    books.confirm(books.next(QUORUM_WAY), 30.0)
    assert books.waits[QUORUM_WAY] == 30.0
    assert books.newest[QUORUM_WAY] == first


def test_a_letter_that_came_before_its_confirm_does_not_wait() -> None:
    books = Books()
    number = books.next(QUORUM_WAY)
    books.find(ENDS, body_of(QUORUM_WAY, number))
    books.confirm(number, 1.0)
    assert books.waits[QUORUM_WAY] is None
    assert books.lost() == []


# -- who lost it ------------------------------------------------------------------------------------------------------

FAULT = (1000.0, 1060.0)


@pytest.mark.parametrize(
    ("way", "told", "troubles", "who"),
    [
        (QUORUM_WAY, None, Troubles([FAULT]), ROUTER),
        (QUORUM_WAY, None, Troubles([FAULT], [1010.0], [FAULT]), ROUTER),
        (CLASSIC_WAY, None, Troubles([FAULT]), BROKER),
        (CLASSIC_WAY, None, Troubles([(1100.0, 1110.0)]), BROKER),  # it lay there when the node went
        (CLASSIC_WAY, None, Troubles([(940.0, 990.0)]), BROKER),  # the inbox was still without a leader
        (CLASSIC_WAY, None, Troubles(), UNDECIDED),
        (CLASSIC_WAY, None, Troubles([(1200.0, 1300.0)]), UNDECIDED),
        (CLASSIC_WAY, None, Troubles([(800.0, 960.0)]), UNDECIDED),
        (CLASSIC_WAY, "dead_lettered", Troubles([FAULT]), ROUTER),
        (CLASSIC_WAY, "parked", Troubles([FAULT]), ROUTER),
        (CLASSIC_WAY, "released", Troubles(), ROUTER),
        (RETRY_WAY, "retried", Troubles([FAULT]), ROUTER),  # it waits in a rung, a quorum queue
        (RETRY_WAY, "released", Troubles([FAULT]), BROKER),  # it was back in the classic queue
        (CLASSIC_WAY, None, Troubles([FAULT], [1020.0]), UNDECIDED),  # a router died with what it had not written
        (CLASSIC_WAY, None, Troubles([FAULT], [990.0, 1040.0]), BROKER),  # before it, or long after
        (CLASSIC_WAY, None, Troubles([FAULT], [], [(1005.0, 1010.0)]), UNDECIDED),  # the journal has a gap there
        (CLASSIC_WAY, None, Troubles([FAULT], [], [(1100.0, 1110.0)]), BROKER),
    ],
)
def test_who_lost_a_letter_that_was_confirmed_at_1000(way: Way, told: str | None, troubles: Troubles, who: str) -> None:
    assert attributed(Lost(7, way, 1000.0), told, troubles)[0] == who


def test_a_classic_source_alone_may_lose_by_the_broker() -> None:
    by_broker = {way for way in WAYS if attributed(Lost(1, way, 1000.0), None, Troubles([FAULT]))[0] == BROKER}
    assert by_broker == set(CLASSIC)


# -- the laws ---------------------------------------------------------------------------------------------------------


def sample(at_s: float, **fields: object) -> Sample:
    """All is well."""
    well: dict[str, object] = {
        "fault": KILLED,
        "up": (True,) * NODES,
        "waits": NOBODY,
        "control": NOBODY,
        "settled": at_s,
        "held": 0,
        "ready": (200,) * ROUTERS,
    }
    return Sample(at_s=at_s, **{**well, **fields})  # type: ignore[arg-type]  # by name, as the class says them


def stands(*samples: Sample) -> list[Stand]:
    laws = Standstills()
    for moment in samples:
        laws.feed(moment)
    laws.end()
    return laws.stands


def test_letters_that_arrive_make_no_standstill() -> None:
    assert stands(*(sample(at, waits={**NOBODY, QUORUM_WAY: at - 0.5}) for at in range(100))) == []


def test_a_standstill_is_as_long_as_letters_of_a_way_wait() -> None:
    waits = {**NOBODY, QUORUM_WAY: 10.0}
    (stand,) = stands(*(sample(at, waits=waits if 10 <= at <= 50 else NOBODY) for at in range(60)))
    assert (stand.source, stand.begun_s, stand.seconds, stand.alone_s) == (QUORUM_WAY.source, 10.0, 40.0, 40.0)


def test_a_standstill_counts_from_the_moment_that_a_majority_is_back() -> None:
    waits = {**NOBODY, QUORUM_WAY: 10.0}
    lonely = (True, False, False)
    (stand,) = stands(
        *(sample(at, waits=waits, up=lonely if at < 100 else (True, True, False)) for at in range(10, 121))
    )
    assert (stand.begun_s, stand.seconds) == (100.0, 20.0)


@pytest.mark.parametrize(("away", "many"), [(1, 0), (0, 1)])
def test_a_classic_source_is_asked_for_nothing_while_its_node_is_away(away: int, many: int) -> None:
    up = tuple(at != away for at in range(NODES))
    assert len(stands(*(sample(at, up=up, waits={**NOBODY, CLASSIC_WAY: 0.0}) for at in range(40)))) == many


def test_what_the_control_stood_too_is_not_the_routers() -> None:
    waits = {**NOBODY, QUORUM_WAY: 0.0}
    (stand,) = stands(*(sample(at, waits=waits, control=waits if at <= 30 else NOBODY) for at in range(36)))
    assert (stand.seconds, stand.alone_s) == (35.0, 5.0)


def test_what_lies_in_the_brokers_own_dead_letter_stage_is_not_the_routers() -> None:
    waits, held, nothing = {**NOBODY, QUORUM_WAY: 0.0}, frozenset({QUORUM_WAY.source}), frozenset[str]()
    (stand,) = stands(*(sample(at, waits=waits, broker_holds=held if at > 20 else nothing) for at in range(41)))
    assert (stand.seconds, stand.alone_s) == (40.0, 0.0)
    (stand,) = stands(*(sample(at, waits=waits, broker_holds=held if at < 20 else nothing) for at in range(41)))
    assert (stand.seconds, stand.alone_s) == (40.0, 21.0)


def test_letters_that_wait_in_a_rung_whose_worker_stands_are_the_brokers_too() -> None:
    retry = QUORUM[2]
    waits, held = {**NOBODY, retry: 0.0, QUORUM_WAY: 0.0}, frozenset({"dlx-router.delay.300"})
    by_source = {
        stand.source: stand for stand in stands(*(sample(at, waits=waits, broker_holds=held) for at in range(41)))
    }
    assert (by_source[retry.source].alone_s, by_source[retry.source].in_broker_s) == (0.0, 40.0)
    assert (by_source[QUORUM_WAY.source].alone_s, by_source[QUORUM_WAY.source].in_broker_s) == (40.0, 0.0)


def test_a_dead_letter_worker_stands_while_its_oldest_letter_does() -> None:
    stages = DeadLetterStages()
    for at, many in enumerate([3, 3, 5, 8, 8]):
        dead = {"stands": Stage(many, 7), "flows": Stage(many, at), "empty": Stage(0, 7)}
        stages.feed(3.0 * at, Stages(dead, frozenset()))
    assert stages.standing(12.0) == {"stands"}
    assert stages.standing(60.0) == frozenset(), "nobody has looked since"
    stages.feed(15.0, Stages({"stands": Stage(9, 8)}, frozenset()))
    assert stages.standing(15.0) == frozenset(), "one left it"


def test_letters_for_a_queue_without_a_leader_are_the_brokers_as_long_as_it_is_seen() -> None:
    stages, waits = DeadLetterStages(), {**NOBODY, QUORUM_WAY: 0.0, QUORUM[1]: 0.0, QUORUM[2]: 0.0}
    stages.feed(0.0, Stages({}, frozenset({ENDS})))
    assert (stages.silent(15.0), stages.silent(16.0)) == (frozenset({ENDS}), frozenset())
    for queue, ways in {
        ENDS: QUORUM[:2],
        "dlx-router.inbox": [QUORUM_WAY, QUORUM[2]],
        QUORUM[1].source: [QUORUM[1]],
    }.items():
        standstills = stands(*(sample(at, waits=waits, silent=frozenset({queue})) for at in range(41)))
        assert {stand.source for stand in standstills if not stand.alone_s} == {way.source for way in ways}


def test_two_standstills_of_a_way_are_two() -> None:
    early = [sample(at, waits={**NOBODY, QUORUM_WAY: 0.0}) for at in range(20)]
    late = [sample(at, waits={**NOBODY, QUORUM_WAY: 25.0}) for at in range(25, 50)]
    assert [stand.seconds for stand in stands(*early, *late)] == [19.0, 24.0]


def in_vain(*samples: Sample) -> Readiness:
    laws = Readiness()
    for moment in samples:
        laws.feed(moment)
    return laws


WAITING = {**NOBODY, QUORUM_WAY: 0.0}


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"held": 5, "settled": 7.0}, 9),  # seconds 11 to 19 of twenty
        ({"held": 5, "settled": 7.0, "ready": (503, 200)}, 9),
        ({"held": 5, "settled": 7.0, "ready": (503, 0)}, 0),
        ({"held": 0, "settled": 7.0}, 0),  # nothing to do
        ({"held": 5}, 0),  # it moves
        ({"held": None, "settled": 7.0}, 0),  # the broker says nothing, and nothing waits
        ({"held": None, "settled": 7.0, "waits": WAITING}, 9),
        ({"held": 0, "settled": 7.0, "waits": WAITING, "up": (True, False, False)}, 9),  # an old number
        ({"held": 0, "settled": 7.0, "waits": WAITING}, 0),  # what waits is not held by the broker's inbox or sources
    ],
)
def test_seconds_ready_while_nothing_moved(told: dict[str, object], seconds: int) -> None:
    assert len(in_vain(*(sample(at, **told) for at in range(20))).seconds) == seconds


def test_letters_that_stand_with_the_consumers_of_a_frozen_node_are_held_too() -> None:
    laws = Readiness()
    for at in range(20):
        laws.feed(sample(at, held=0, settled=7.0, waits=WAITING), stands=True)
    assert len(laws.seconds) == 9


def test_the_ten_seconds_begin_anew_with_whatever_moves() -> None:
    moved = [sample(at, held=5, settled=float(at // 9)) for at in range(60)]
    assert in_vain(*moved).seconds == []


def test_letters_that_come_after_an_idle_hour_have_their_ten_seconds() -> None:
    idle = [sample(at, settled=7.0) for at in range(3600)]
    laws = in_vain(*idle, *(sample(3600 + at, settled=7.0, held=1) for at in range(10)))
    assert laws.seconds == []


def test_seconds_in_vain_are_told_as_spans() -> None:
    again = (at if at < 40 else at + 100 for at in range(60))
    laws = in_vain(*(sample(at, held=5, settled=float(at >= 100), ready=(200, 503)) for at in again))
    first, second = laws.spans()
    assert first.startswith("29 s: replica 0 said 200")
    assert second.startswith("9 s: replica 0 said 200")


# -- connections between nodes that were dead --------------------------------------------------------------------------

NAMES = ("n22019@localhost", "n23284@localhost", "n21595@localhost")
AT_S = 1795436288.78988  # 12:18:08.789880 of the logs
HEAD = "2026-11-23 12:18:08.789880+00:00 [error] <0.19298.0>"
LOG_40 = f"""\
{HEAD} ** Node n23284@localhost not responding **
{HEAD} ** Removing (timedout) connection **
{HEAD}\x20
2026-11-23 12:18:08.790680+00:00 [info] <0.463.0> rabbit on node n23284@localhost down
2026-11-23 12:18:08.791548+00:00 [warning] <0.627.0> [{{<19301.15448.0>,{{exit,{{nodedown,n23284@localhost}},[]}}}}]
2026-11-23 12:18:09.209845+00:00 [info] <0.463.0> node n23284@localhost down: net_tick_timeout
"""
WARNED = "** Node n23284@localhost: 4 consecutive net ticks missed (tick 1/4) — net_tick_timeout **"
LOG_43 = f"2026-11-23 12:18:08.789800+00:00 [warning] <0.168.0> {WARNED}\n{LOG_40}"


@pytest.mark.parametrize("log", [LOG_40, LOG_43])
def test_a_node_that_gives_up_a_connection_says_when_and_to_whom(log: str) -> None:
    assert silences(["", "", log], NAMES) == [Silence(2, 1, AT_S)]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-23 12:18:08.789880+00:00 [info] <0.463.0> rabbit on node n23284@localhost down",
        f"{HEAD} ** Node rabbitmqcli-1@localhost not responding **",
        "** Node n23284@localhost not responding **",
        "",
    ],
)
def test_other_lines_of_a_node_say_nothing_of_a_connection(line: str) -> None:
    assert silences([line, line, line], NAMES) == []


def test_silences_of_all_nodes_are_told_by_time() -> None:
    later = LOG_40.replace("12:18:", "12:19:")
    assert [(silence.by, silence.at_s) for silence in silences(["", later, LOG_40], NAMES)] == [
        (2, AT_S),
        (1, AT_S + 60),
    ]


@pytest.mark.parametrize(
    ("held", "spans"),
    [
        ([], [(955.0, 1000.0)]),
        ([Held((0,), 890.0, 990.0)], [(955.0, 1000.0)]),  # another node
        ([Held((1,), 900.0, 1010.0)], []),  # nobody hears a node that is paused
        ([Held((0, 2), 900.0, 1010.0)], []),  # who is paused hears nothing
        ([Held((1,), 900.0, 980.0)], [(980.0, 1000.0)]),  # it ran again, and was not heard
        ([Held((1,), 990.0, 1010.0)], [(955.0, 990.0)]),
        ([Held((1,), 960.0, 970.0), Held((2,), 965.0, 980.0)], [(955.0, 960.0), (980.0, 1000.0)]),
    ],
)
def test_nodes_are_partitioned_in_the_certain_seconds_in_which_no_fault_held_them(
    held: list[Held], spans: list[tuple[float, float]]
) -> None:
    assert partitions([Silence(2, 1, 1000.0)], held) == [Partition(2, 1, *span) for span in spans]


@pytest.mark.parametrize(
    ("alone_s", "found", "left_s", "partitioned_s"),
    [
        (58.0, [], 58.0, 0.0),
        (58.0, [(115.0, 160.0)], 13.0, 45.0),
        (58.0, [(115.0, 140.0), (150.0, 155.0)], 13.0, 30.0),
        (58.0, [(105.0, 120.0)], 40.0, 15.0),  # what it stands after is its own
        (58.0, [(115.0, 140.0), (110.0, 130.0)], 20.0, 30.0),  # two pairs of nodes at once
        (58.0, [(0.0, 100.0), (160.0, 200.0)], 58.0, 0.0),
        (58.0, [(0.0, 200.0)], 0.0, 60.0),
        (10.0, [(115.0, 140.0)], 10.0, 25.0),  # with the control before
        (0.0, [(115.0, 140.0)], 0.0, 25.0),
    ],
)
def test_seconds_in_which_two_nodes_that_ran_did_not_hear_each_other_are_the_brokers(
    alone_s: float, found: list[tuple[float, float]], left_s: float, partitioned_s: float
) -> None:
    stand = beside(Stand("dead.quorum", KILLED, 100.0, 60.0, alone_s), [Partition(2, 1, *span) for span in found])
    assert (stand.seconds, stand.alone_s, stand.partitioned_s) == (60.0, left_s, partitioned_s)
    assert ("did not hear each other" in str(stand)) == bool(partitioned_s)


_TIMES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (float(min(pair)), float(max(pair))))


@given(_TIMES, st.lists(_TIMES))
def test_the_pieces_outside_are_the_seconds_that_no_other_span_has(
    span: tuple[float, float], others: list[tuple[float, float]]
) -> None:
    def seconds(*spans: tuple[float, float]) -> set[int]:
        return {at for begun, ended in spans for at in range(int(begun), int(ended))}

    pieces = outside(span, others)
    assert seconds(*pieces) == seconds(span) - seconds(*others)
    assert all(before[1] <= after[0] for before, after in pairwise(pieces))


def test_a_letter_lost_around_a_dead_connection_without_a_fault_is_the_brokers() -> None:
    (silence,) = silences(["", "", LOG_40], NAMES)
    for at_s in (silence.at_s - 75.0, silence.at_s):
        assert attributed(Lost(7, CLASSIC_WAY, at_s), None, Troubles())[0] == UNDECIDED
        assert attributed(Lost(7, CLASSIC_WAY, at_s), None, Troubles([silence.trouble]))[0] == BROKER
        assert attributed(Lost(7, QUORUM_WAY, at_s), None, Troubles([silence.trouble]))[0] == ROUTER


# -- the draw ---------------------------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_faults_and_each_kind_once_a_round() -> None:
    for part in PARTS:
        rounds = list(islice(drawn(7, part), 3 * len(KINDS)))
        assert rounds == list(islice(drawn(7, part), 3 * len(KINDS)))
        for at in range(3):
            assert {fault.kind for fault in rounds[at * len(KINDS) :][: len(KINDS)]} == set(KINDS)
    assert list(islice(drawn(7, PARTS[0]), 9)) != list(islice(drawn(8, PARTS[0]), 9))


def test_pauses_last_40_to_90_seconds_and_fall_on_distinct_nodes() -> None:
    for fault in islice(drawn(3, PARTS[0], (PAUSED_LONG, TWO_PAUSED)), 200):
        assert 40 <= fault.seconds <= 90
        assert len(set(fault.members)) == len(fault.members) == (2 if fault.kind == TWO_PAUSED else 1)
        assert set(fault.members) <= set(range(NODES))


def test_a_kill_of_a_router_is_of_one_that_there_is() -> None:
    assert {fault.members for fault in islice(drawn(3, PARTS[0], (ROUTER_KILLED,)), 50)} == {(0,), (1,)}


# -- the report -------------------------------------------------------------------------------------------------------


def part_report(**fields: object) -> PartReport:
    rows = [Row(way.source, 10, {}, 10, 0) for way in WAYS]
    fault = Fault(Drawn(KILLED, (1,), 2.0), 1000.0, 1008.0, 3.0, 2.0, 4.0)
    well: dict[str, object] = {"rows": rows, "faults": [fault], "seconds": 60.0}
    return PartReport(PARTS[0], "4.3.6", "60", obeys=False, **{**well, **fields})  # type: ignore[arg-type]  # by name


def report_of(part: PartReport) -> Report:
    return Report("0.1.0", 7, 1.0, 100.0, [part])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rows": [Row("dead.quorum", 10, {ROUTER: 1}, 10, 0)]}, "1 letters lost by the router"),
        ({"rows": [Row("dead.classic.1", 10, {UNDECIDED: 2}, 10, 0)]}, "nobody can say"),
        ({"rows": [Row("dead.classic.1", 10, {BROKER: 99}, 10, 9)]}, "the hop out of classic sources: 99 letters"),
        ({"rows": [Row("attached.classic.1", 10, {BROKER: 51}, 10, 0)]}, "attended classic sources: 51 letters"),
        ({"stands": [Stand("dead.quorum", KILLED, 0.0, 40.0, 31.0)]}, "stood for 40 s"),
        ({"faults": [Fault(Drawn(KILLED, (1,), 2.0), 0.0, 8.0, None, 2.0, 4.0)]}, "not every way flowed again"),
        ({"in_vain": 3, "in_vain_spans": ["3 s: replica 0 said 200"]}, "ready for 3 s while nothing moved"),
        ({"violations": ["router 0 ended by itself: exit 1"]}, "ended by itself"),
    ],
)
def test_each_law_that_breaks_is_said(fields: dict[str, object], said: str) -> None:
    report = report_of(part_report(**fields))
    assert any(said in violation for violation in report.broken)
    assert said in markdown(report)
    assert as_json(report)["violations"] == report.broken


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rows": [Row("dead.classic.1", 10, {BROKER: 4}, 10, 3)]},
        {"stands": [Stand("dead.quorum", KILLED, 0.0, 60.0, 29.0)]},
        {"faults": [Fault(Drawn(KILLED, (1,), 2.0), 0.0, 8.0, None, None, None)]},
    ],
)
def test_what_the_broker_does_by_itself_breaks_no_law(fields: dict[str, object]) -> None:
    report = report_of(part_report(**fields))
    assert report.broken == []
    assert "Every law holds." in markdown(report)


def test_dead_connections_and_answers_that_were_lost_are_told_and_break_no_law() -> None:
    stand = Stand("attached.classic.1", KILLED, 0.0, 60.0, 13.0, 0.0, 45.0)
    report = report_of(part_report(partitions=[Partition(2, 1, AT_S - 45, AT_S)], stands=[stand], came_anew=(145, 147)))
    page = markdown(report)
    assert "node 2 heard nothing of node 1 from 12:17:23 to 12:18:08 UTC (45 s)" in page
    assert "| of a standstill, while two running nodes did not hear each other, at most | 45 s (attached" in page
    assert "* 4.3:autoheal: 145, and 147 of the control's" in page
    assert report.broken == []
    assert (as_json(report)["parts"][0]["came_anew"], len(as_json(report)["parts"][0]["partitions"])) == ((145, 147), 1)


def test_nothing_is_told_of_connections_that_were_never_dead() -> None:
    assert "no fault held either:" not in markdown(report_of(part_report()))
    assert "never got" not in markdown(report_of(part_report()))


def test_each_writer_of_the_page_leaves_the_others_section() -> None:
    page = with_section("# Reliability\n\nold\n", "chaos-cluster", "## Nodes\n\nfirst")
    page = with_section(page, "chaos-cluster", "## Nodes\n\nsecond")
    page = with_all_but(page, "chaos-cluster", "# Reliability\n\nnew\n")
    assert "old" not in page
    assert "first" not in page
    assert page.startswith("# Reliability\n\nnew\n")
    assert page.count("## Nodes\n\nsecond") == 1
    assert with_section(page, "chaos-cluster", "## Nodes\n\nsecond") == page
    assert with_all_but("# R\n", "chaos-cluster", "# New\n") == "# New\n"
