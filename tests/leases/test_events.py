"""What the journal says of leases, and what another leader reads of it. No broker is needed."""

import json

import pytest

from dlx_router.core.leases import REMOVED, Ended, Lease
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.journal.fields import FIELDS
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.leases.events import ended_line, leased_line, removals
from dlx_router.service.leases.holder import HeldLetter, count_of, key_of
from dlx_router.wire import frames, table

NAMES = Names("dlx-router")
KEY = b"k" * 32
PLACE = Place("/", "DLQ.work", Arrival.INBOX, NAMES, KEY, dead_letter_exchanges=decoder.ANY_EXCHANGE, rests=True)


class Channel:
    queue = "DLQ.work"


def delivery(body: bytes = b"hello", headers: bytes = b"") -> frames.Delivery:
    death = table.longstr(b"queue", "work") + table.longstr(b"reason", "rejected") + table.long_(b"count", 1)
    death += table.timestamp(b"time", 1_700_000_000) + table.longstr(b"exchange", "")
    death += table.array_of_longstr(b"routing-keys", ["work"])
    whole = headers + table.field_array(b"x-death", [death])
    section = (0x2000).to_bytes(2, "big") + len(whole).to_bytes(4, "big") + whole
    header = bytes(4) + len(body).to_bytes(8, "big") + section
    return frames.Delivery(1, b"t", 1, False, b"", b"work", header, body)  # noqa: FBT003 - as a frame has it


def lease(arrival: frames.Delivery) -> Lease[HeldLetter]:
    letter, envelope = decoder.read(arrival, PLACE)
    held = HeldLetter(Channel(), letter, envelope, None, "0123456789ab", since_s=0.0, epoch=1)  # type: ignore[arg-type]  # as the real one
    return Lease("lease-1", "ann", key_of(letter, envelope), 5, 0, held, receives=2)


def test_a_lease_is_told_with_who_has_it_and_until_when() -> None:
    event = json.loads(leased_line(lease(delivery()), "router", now_ms=1000, due_ms=9000))
    facts = event["kind"], event["due_ms"], event["redrive_id"], event["failed_queue"]
    assert facts == ("leased", 9000, "lease-1", "work")
    assert event["lease"] == {"id": "lease-1", "by": "ann", "receives": 2}
    assert event["source"] == "DLQ.work"
    assert {*event} <= {field.name for field in FIELDS}


@pytest.mark.parametrize("how", [*Ended])
def test_what_removed_a_letter_is_read_again_and_nothing_else(how: Ended) -> None:
    leased = lease(delivery())
    lines = leased_line(leased, "router", now_ms=1, due_ms=2) + ended_line(leased, how, "router", 3)
    ends = [*removals(lines)]
    assert [(end.key, end.lease_id, end.how) for end in ends] == (
        [(lease(delivery()).key, "lease-1", how)] if how in REMOVED else []
    )
    assert json.loads(lines.splitlines()[1])["lease"]["ended"] == how


def test_odd_lines_of_others_are_left_out() -> None:
    mark = b'"kind":"lease_ended"'
    members = (b"", b',"lease":7', b',"lease":{"key":1,"id":2,"ended":"done"}', b',"lease":{"key":"a","id":"b"}')
    odd = (b"{" + mark, *(b"{" + mark + member + b"}" for member in members))
    assert [*removals(b"\n".join(odd))] == []


def test_each_lease_has_events_of_its_own_and_a_repeated_end_is_one() -> None:
    first, second = lease(delivery()), lease(delivery())
    second.id = "lease-2"
    lines = [ended_line(leased, Ended.DONE, "router", at) for leased, at in ((first, 1), (second, 1), (first, 9))]
    ids = [json.loads(line)["event_id"] for line in lines]
    assert ids[0] != ids[1]
    assert ids[0] == ids[2]


def test_the_key_is_of_the_letter_and_not_of_how_often_it_was_delivered() -> None:
    plain = lease(delivery())
    counted = delivery(headers=table.long_(b"x-delivery-count", 3) + table.long_(b"x-acquired-count", 7))
    again = lease(counted)
    assert again.key == plain.key
    names = b"x-acquired-count", b"x-delivery-count"
    assert [count_of(again.held.envelope, name) for name in names] == [7, 3]
    assert [count_of(plain.held.envelope, name) for name in names] == [0, 0]
    assert lease(delivery(b"other")).key != plain.key
    assert lease(delivery(headers=table.longstr(b"a", "b"))).key != plain.key
