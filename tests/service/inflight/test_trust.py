"""What a letter is obeyed for: deaths by a dead-letter exchange that is named, a record of this vhost. No broker."""

import struct
import time
from dataclasses import replace
from typing import Any, Final, cast
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import Arrival, Death, First, Props
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.core.record import AT_REST_BYTES, Record, encode
from dlx_router.core.words import UNKNOWN, Action, Cause
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.decoder import ANY_EXCHANGE, Malformed, Place
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.inflight.job import Job
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames, properties, table

KEY: Final = b"k" * 32
NAMES: Final = Names()
NOBODY: Final = cast("Consumer", None)
SOURCE: Final = Source("all", "all.yaml", 1)
BODY: Final = b"hello"
SECRET: Final = "secret.queue"
ATTACHED: Final = Place("/", "legacy.failed", Arrival.INBOX, NAMES, KEY)
NAMED: Final = replace(ATTACHED, dead_letter_exchanges=frozenset({b"dlx"}))
INBOX: Final = replace(ATTACHED, source=NAMES.inbox)
RELEASE: Final = replace(ATTACHED, source=NAMES.release, arrival=Arrival.RELEASE)
OUR_OWN: Final = (NAMES.return_, NAMES.release, NAMES.declared, NAMES.delay(1000))
exchanges = st.sampled_from(["", "dlx", "dlX", "dlx ", "in", *sorted(NAMES.inlets), *OUR_OWN]) | st.text(max_size=9)


def _decider(metrics: Metrics | None = None) -> Decider:
    definition = {"max-delivery-attempts": Setting(5, SOURCE), "redelivery-delay": Setting(5000, SOURCE)}
    policy = Policy("all", Selector(SelectorKind.MATCH, "#"), SOURCE, definition=definition)
    journal = Journal(mode=Mode.OFF, name="j", vhost="/", router_id="r", readiness=Readiness())
    return Decider(
        InForce.of(Rules(ordered([policy], "abcdef012345"), NAMES, 30_000), "/"), metrics or Metrics(), journal
    )


def _x_death(*queues: str) -> bytes:
    def entry(queue: str) -> bytes:
        fields = table.long_(b"count", 1) + table.longstr(b"reason", "rejected") + table.longstr(b"queue", queue)
        fields += table.timestamp(b"time", 1_795_239_999) + table.longstr(b"exchange", "")
        return fields + table.array_of_longstr(b"routing-keys", [queue])

    first = {"queue": queues[0], "reason": "rejected", "exchange": ""}
    return table.field_array(b"x-death", [entry(queue) for queue in queues]) + b"".join(
        table.longstr(f"x-first-death-{name}".encode(), value) for name, value in first.items()
    )


def _delivery(exchange: str, headers: bytes, tag: int = 1, body: bytes = BODY) -> frames.Delivery:
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties.build(headers=headers)
    routed = exchange.encode(errors="surrogateescape"), b"key"
    return frames.Delivery(1, b"c", tag, False, *routed, header, body)  # noqa: FBT003 - AMQP order


def _record(**fields: Any) -> Record:
    now = int(time.time() * 1000)
    defaults: dict[str, Any] = {
        "id": "a" * 32, "state": "held", "vhost": "/", "failed_queue": "work", "attempts": 1, "redrives": 0, "tries": 1,
        "reason": "rejected", "policy": "all", "revision": "abcdef012345", "first_death_ms": now, "last_death_ms": now,
        "deaths": (Death("work", "rejected", 1, now // 1000, "", ("work",)),), "crc32": crc32(BODY), "size": len(BODY),
        "cause": "target_refused", "props": Props(None, None, None, None, None),
    }  # fmt: skip
    return Record(**defaults | fields)


def _signed(record: Record) -> bytes:
    return table.longstr(b"dlx-router", encode(record, KEY, AT_REST_BYTES))


def _judged(delivery: frames.Delivery, place: Place, metrics: Metrics | None = None) -> Job:
    return _decider(metrics).judge(delivery, NOBODY, place, 0.0)


def _leads_to_secret(job: Job) -> bool:
    copy = job.copy
    return copy is not None and SECRET in f"{copy.record.failed_queue} {copy.routing_key} {copy.bcc}"


@given(exchange=exchanges, place=st.sampled_from([ATTACHED, NAMED, INBOX]))
def test_deaths_are_obeyed_only_of_what_came_by_an_exchange_that_is_named(exchange: str, place: Place) -> None:
    named = {id(ATTACHED): set(), id(NAMED): {"dlx"}, id(INBOX): {"", *NAMES.inlets}}[id(place)]
    metrics = Metrics()
    job = _judged(_delivery(exchange, _x_death(SECRET)), place, metrics)
    assert _leads_to_secret(job) is (exchange in named)
    declares = place is INBOX and exchange == NAMES.declared
    assert metrics.untrusted_deaths["/"] == (exchange not in named and not declares)


@given(exchange=exchanges)
def test_the_short_way_takes_nobody_who_did_not_come_by_such_an_exchange(exchange: str) -> None:
    """Also not where the same letters were believed a moment ago: policies are read anew, and places with them."""
    decider = _decider()
    jobs = [decider.judge(_delivery(exchange, _x_death(SECRET), tag), NOBODY, NAMED, 0.0) for tag in (1, 2, 3)]
    assert (jobs[-1].route is not None) is (exchange == "dlx")
    assert not _leads_to_secret(decider.judge(_delivery(exchange, _x_death(SECRET), 4), NOBODY, ATTACHED, 0.0))


def test_what_is_not_believed_stays_on_the_copy_as_it_came() -> None:
    headers = _x_death(SECRET, "other")
    job = _judged(_delivery("in", headers), ATTACHED)
    section = Encoder(user="u", last_deaths=True, key=KEY, quarantine="q").write(job, b"")[2]
    assert properties.parse(section, 0).headers.startswith(headers)
    assert (job.action, job.cause) == (Action.PARK, Cause.UNKNOWN_ORIGIN)


@pytest.mark.parametrize("place", [ATTACHED, NAMED, INBOX])
def test_what_no_broker_could_write_is_quarantined_all_the_same(place: Place) -> None:
    """Written again, it would end the process of a queue on 3.10."""
    job = _judged(_delivery("in", table.longstr(b"x-death", "text")), place)
    assert job.action is Action.QUARANTINE


@pytest.mark.parametrize("deaths", [(SECRET,), (NAMES.delay(1000), SECRET), (SECRET, "work")])
@pytest.mark.parametrize("state", ["held", "retrying"])
@pytest.mark.parametrize("known", [True, False], ids=["failed", "alive or unknown"])
def test_at_the_end_of_a_wait_only_the_record_says_where_a_letter_failed(
    deaths: tuple[str, ...], state: str, *, known: bool
) -> None:
    """Whoever may write to release has seen true records, and can send the letter again."""
    own = _record(state=state) if known else _record(state=state, deaths=(), reason=UNKNOWN)
    letter, _ = decoder.read(_delivery(NAMES.release, _x_death(*deaths) + _signed(own)), RELEASE)
    assert (letter.failed_queue, letter.history, letter.fresh) == ("work", own.deaths, ())
    assert not _leads_to_secret(_judged(_delivery(NAMES.release, _x_death(*deaths) + _signed(own)), RELEASE))


@pytest.mark.parametrize("exchange", ["", NAMES.inbox, "dlx"])
def test_a_letter_that_was_parked_as_new_and_is_moved_to_the_inbox_by_hand_is_not_believed_then(exchange: str) -> None:
    own = _record(state="parked", failed_queue="legacy.failed", deaths=(), reason=UNKNOWN, cause="unknown_origin")
    job = _judged(_delivery(exchange, _x_death(SECRET) + _signed(own)), INBOX)
    assert _leads_to_secret(job) is (exchange == NAMES.inbox), "nobody but the broker writes there"


def test_a_redrive_of_a_letter_with_a_record_goes_by_the_record() -> None:
    place = replace(ATTACHED, source=NAMES.parking, dead_letter_exchanges=ANY_EXCHANGE, rests=True)
    own = _record(state="parked", failed_queue="legacy.failed", deaths=(), reason=UNKNOWN, cause="unknown_origin")
    letter, _ = decoder.read(_delivery("", _x_death(SECRET) + _signed(own)), place)
    assert (letter.failed_queue, letter.history) == ("legacy.failed", ())


def test_what_a_cut_record_lost_is_told_by_x_death_at_the_end_of_a_wait() -> None:
    now = int(time.time())
    newest = Death("work", "rejected", 1, now, "", ("work",))
    own = _record(deaths=(newest,), cut=True)
    headers = table.field_array(b"x-death", [_entry(newest), _entry(newest._replace(queue="older"))])
    letter, _ = decoder.read(_delivery(NAMES.release, headers + _signed(own)), RELEASE)
    assert ([death.queue for death in letter.history], letter.fresh) == (["work", "older"], ())


def _entry(death: Death) -> bytes:
    fields = table.long_(b"count", death.times) + table.longstr(b"reason", death.reason)
    fields += table.longstr(b"queue", death.queue) + table.timestamp(b"time", death.time_s)
    return fields + table.longstr(b"exchange", "") + table.array_of_longstr(b"routing-keys", [*death.routing_keys])


# -- what dies in a relay or guard -----------------------------------------------------------------------------------


def test_what_dies_by_our_decision_has_the_history_of_our_record_and_not_of_what_was_written() -> None:
    place = replace(ATTACHED, source="work")
    own = _record(state="retrying")
    letter, _ = decoder.read(_delivery(NAMES.return_, _x_death("work", SECRET) + _signed(own)), place, dies="rejected")
    assert [(death.queue, death.times) for death in letter.history] == [("work", 2)]
    letter, _ = decoder.read(_delivery("in", _x_death("work", SECRET)), place, dies="rejected")
    assert [(death.queue, death.times) for death in letter.history] == [("work", 1)]


def test_what_was_held_in_a_relay_and_then_dies_has_died_once() -> None:
    came = First("hop", "in", ("key",), UNKNOWN)
    own = _record(
        failed_queue="hop", reason=UNKNOWN, first=came, deaths=(Death("hop", "expired", 1000, 1, "p", ("s",)),)
    )
    headers = _x_death(NAMES.delay(1000), "hop") + _signed(own)
    letter, _ = decoder.read(_delivery(NAMES.release, headers), RELEASE, dies="expired", came=came)
    assert [(death.queue, death.times, death.exchange) for death in letter.history] == [("hop", 1, "in")]


# -- records of other vhosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vhost", ["other", "", "/ ", "//"])
@pytest.mark.parametrize("place", [ATTACHED, INBOX])
def test_a_record_of_another_vhost_is_foreign_data(vhost: str, place: Place) -> None:
    metrics = Metrics()
    delivery = _delivery(NAMES.inbox, _signed(_record(vhost=vhost, state="retrying")))
    letter, envelope = decoder.read(delivery, place)
    assert (envelope.record, envelope.foreign_record, letter.parent) == (None, True, None)
    assert letter.id != "a" * 32
    _judged(delivery, place, metrics)
    assert metrics.foreign_records["/"] == 1


def test_a_record_of_another_vhost_is_quarantined_at_the_end_of_a_wait() -> None:
    with pytest.raises(Malformed, match="of vhost 'other', and this is '/'"):
        decoder.read(_delivery(NAMES.release, _signed(_record(vhost="other"))), RELEASE)


def test_the_metrics_begin_at_zero() -> None:
    metrics = Metrics()
    metrics.serve("/", [])
    assert b'dlx_router_foreign_records_total{vhost="/"} 0.0' in metrics.text()
    assert b'dlx_router_untrusted_deaths_total{vhost="/"} 0.0' in metrics.text()
