"""What comes from outside is read: a value, or the one error that the reader promises. Never anything else."""

import contextlib
import dataclasses
import json
import struct
from typing import Any

import pytest
from hypothesis import strategies as st

from dlx_router.core import declaration, remembered
from dlx_router.core.declaration import DeclarationError
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.record import RecordError, sign
from dlx_router.index import rows
from dlx_router.journal import packing, reading
from dlx_router.redrive.task import Task, TaskError, of_document
from dlx_router.service.inflight import decoder
from dlx_router.wire import frames, properties, table
from dlx_router.wire.errors import WireError
from tests.fuzz import hostile
from tests.fuzz.budget import LIMIT_S, fuzz

pytestmark = pytest.mark.timeout(LIMIT_S)
KEY = b"k" * 32
PLACES = [
    decoder.Place("/", source, arrival, Names(), KEY)
    for source, arrival in [
        ("dlx-router.inbox", Arrival.INBOX), ("fuzz.attached", Arrival.INBOX), ("dlx-router.release", Arrival.RELEASE),
        ("dlx-router.retired", Arrival.RETIRED),
    ]
]  # fmt: skip


def _delivery(raw: bytes, exchange: str, key: str, body: bytes) -> frames.Delivery:
    head = struct.pack(">HHQ", 60, 0, len(body)) + raw
    return frames.Delivery(1, b"c", 1, False, hostile.raw(exchange), hostile.raw(key), head, body)  # noqa: FBT003 - AMQP order


def _read(place: decoder.Place, raw: bytes, exchange: str, key: str, dies: str) -> None:
    try:
        letter, _ = decoder.read(_delivery(raw, exchange, key, b"body"), place, dies=dies)
    except decoder.Malformed:
        return
    assert letter.id
    assert not any(place.names.is_own(death.queue) for death in letter.history), "an own queue is no failed queue"


_dies = st.sampled_from(["", "", "expired", "maxlen"])


def _cut(whole: bytes, at: int, instead: bytes) -> bytes:
    at %= len(whole)
    return whole[:at] + instead + whole[at + len(instead) :]


_ROWS = hostile.headers.map(hostile.properties)


def test_a_letter_or_malformed_whatever_its_headers_hold() -> None:
    assert fuzz(_read, st.sampled_from(PLACES), _ROWS, hostile.names, hostile.names, _dies)


def test_properties_and_tables_or_the_error_that_says_where() -> None:
    def check(raw: bytes) -> None:
        try:
            props = properties.parse(raw, 0)
            table.decode(props.headers)
        except (WireError, table.TableError):
            return

    assert fuzz(
        check,
        st.binary(max_size=200)
        | st.builds(_cut, hostile.headers.map(hostile.properties), st.integers(0), st.binary(max_size=3)),
    )


def test_a_record_or_its_error() -> None:
    def check(text: bytes) -> None:
        try:
            remembered.decode(text, KEY)
        except RecordError:
            return
        raise AssertionError(f"nobody signed {text!r}")

    assert fuzz(check, hostile.texts)


def test_a_signed_record_or_its_error() -> None:
    def check(text: bytes) -> None:
        try:
            remembered.decode(sign(text, KEY), KEY)
        except RecordError:
            return

    assert fuzz(check, hostile.texts)


@pytest.mark.slow
def test_a_declaration_or_its_error() -> None:
    def check(text: bytes) -> None:
        try:
            declaration.read(text)
        except DeclarationError:
            return

    assert fuzz(check, hostile.texts)


def test_an_event_or_its_error() -> None:
    def check(line: bytes) -> None:
        try:
            rows.event_of(line)
        except rows.EventError:
            return

    assert fuzz(check, hostile.texts)


def _unpacked(body: bytes, version: int | None) -> None:
    for variant in (body, packing.packed(body), packing.MAGIC + body):
        try:
            parts = reading.parts(variant, version)
        except packing.FormatError:
            continue
        for part in parts:
            assert isinstance(part, bytes) or isinstance(json.loads(part.line()), dict)
            with contextlib.suppress(rows.EventError):
                rows.event_of(part)


_SHARED = b'{"v":1,"kind":"parked","deaths":[{"queue":"q"}],"props":{"type":"t"},"body_mode":"none"}'
_ROW = b'[0,"aa","bb",1,null,0,0,3,4,[5],{},{"draw":0.5}]'
_pieces = st.sampled_from(
    [_SHARED, _ROW, b"[", b"]", b"{", b"}", b'"', b",", b"0", b"-1", b"1e9", b"null", b"\n", b"[0,"]
)


def test_a_message_of_the_journal_or_its_error() -> None:
    def broken(seed: list[bytes], at: int, length: int, version: int | None) -> None:
        whole = b"\n".join((_SHARED, _ROW, _ROW))
        at %= len(whole)
        _unpacked(whole[:at] + b"".join(seed) + whole[at + length :], version)

    versions = st.none() | st.integers(-1, 3)
    assert fuzz(
        broken, st.lists(_pieces | st.binary(max_size=9), max_size=6), st.integers(0), st.integers(0, 30), versions
    )


def test_a_task_or_its_error() -> None:
    def check(document: Any) -> None:
        try:
            of_document(document)
        except TaskError:
            return

    members = st.sampled_from([field.name for field in dataclasses.fields(Task)] + ["v", "groups"])
    values = st.text(max_size=5) | st.integers(-2, 2) | st.none() | st.floats() | st.lists(st.integers(), max_size=2)
    assert fuzz(check, st.dictionaries(members, values | st.dictionaries(st.text(max_size=5), values, max_size=3)))


def test_a_history_or_malformed_as_json_survives() -> None:
    """What is read is written again: into a record and an event, which are JSON."""

    def check(raw: bytes) -> None:
        try:
            letter, _ = decoder.read(_delivery(raw, "", "k", b"{}"), PLACES[0])
        except decoder.Malformed:
            return
        json.loads(json.dumps([letter.history, letter.failed_queue, letter.reason]))

    assert fuzz(check, hostile.histories.map(lambda value: hostile.properties([("x-death", *value)])))
