"""The record: every letter of it comes back, only what we signed is obeyed, and it never grows over its limit."""
# ruff: noqa: FBT001 - tables and laws pass flags

import json
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Death, Declared, First, Props
from dlx_router.core.record import (
    AT_REST_BYTES,
    CRC32,
    END,
    SERIAL,
    SIZE,
    TOWARDS_CONSUMERS_BYTES,
    Record,
    RecordError,
    encode,
    mac,
    properties_of,
    run_of,
    sign,
    signer,
    standing,
    told,
)
from dlx_router.core.remembered import decode
from tests.core.core_samples import KEY, amqp_text, death, firsts, histories, law, reasons, record

ENORMOUS = 1 << 30
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | amqp_text,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4) | st.just("mac"), inner, max_size=2)
    ),
    max_leaves=4,
)
naturals = st.integers(0, 2**63)
records = st.builds(
    Record,
    id=st.text("0123456789abcdef", min_size=32, max_size=32),
    serial=st.none() | naturals,
    state=st.sampled_from(["retrying", "dead", "parked", "held"]),
    vhost=amqp_text,
    failed_queue=amqp_text,
    attempts=naturals,
    redrives=naturals,
    tries=naturals,
    reason=reasons,
    policy=st.text(max_size=8),
    revision=st.just("0123456789ab"),
    first_death_ms=naturals,
    last_death_ms=naturals,
    deaths=histories,
    crc32=naturals,
    size=naturals,
    first=st.none() | firsts,
    cause=st.none() | st.just("loop"),
    due_ms=st.none() | naturals,
    props=st.builds(
        Props,
        st.none() | amqp_text,
        st.none() | amqp_text,
        st.none() | amqp_text,
        st.none() | st.integers(0, 255),
        st.none() | st.integers(0, 255),
    ),
    cc=st.none() | st.lists(amqp_text, max_size=2).map(tuple),
    error=st.none()
    | st.dictionaries(st.sampled_from(["type", "message", "frame"]), json_values, min_size=1, max_size=3),
    redrive_id=st.none() | st.just("t-1"),
    parent=st.none() | st.just("cd" * 16),
    shadowed=st.none() | st.dictionaries(st.text(max_size=4), amqp_text, max_size=2),
    target=st.none() | amqp_text,
    cut=st.booleans(),
    declared=st.none() | st.builds(Declared, st.booleans(), st.none(), st.none() | amqp_text),
    more=st.none() | st.dictionaries(st.sampled_from(["v2_name", "zone", ""]), json_values, min_size=1, max_size=2),
)


def document(**members: Any) -> dict[str, Any]:
    """The JSON of a record as it leaves us, with these members put in place of ours."""
    plain: dict[str, Any] = json.loads(encode(record(), KEY, ENORMOUS))
    del plain["mac"]
    return plain | members


def signed(value: Any) -> bytes:
    return sign(json.dumps(value, separators=(",", ":")).encode(), KEY)


def test_the_record_is_laid_out_as_frozen() -> None:
    full = record(
        cause="loop",
        due_ms=5,
        cc=("c",),
        error={"type": "E"},
        redrive_id="r",
        parent="p",
        shadowed={"a": "b"},
        target="t",
        props=Props("m", "u", "60000", 5, 2),
        deaths=(death(original_expiration="10"),),
        cut=True,
    )
    assert json.loads(encode(full, KEY, ENORMOUS)) == {
        "v": 1,
        "id": "ab" * 16,
        "state": "retrying",
        "vhost": "/",
        "failed_queue": "work",
        "first": {"queue": "work", "exchange": "shop", "routing_keys": ["order.created"], "reason": "rejected"},
        "attempts": 1,
        "redrives": 0,
        "tries": 0,
        "reason": "rejected",
        "cause": "loop",
        "policy": "all",
        "revision": "0123456789ab",
        "target": "t",
        "due_ms": 5,
        "first_death_ms": 1_700_000_000_000,
        "last_death_ms": 1_700_000_000_000,
        "deaths": [["work", "rejected", 1, 1_700_000_000, "shop", ["order.created"], "10"]],
        "props": {
            "message_id": "m",
            "user_id": "u",
            "cc": ["c"],
            "expiration": "60000",
            "priority": 5,
            "delivery_mode": 2,
        },
        "error": {"type": "E"},
        "redrive_id": "r",
        "parent": "p",
        "shadowed": {"a": "b"},
        "cut": True,
        "digest": {"crc32": 7, "size": 3},
        "mac": json.loads(encode(full, KEY, ENORMOUS))["mac"],
    }


@law
@given(records)
def test_every_record_comes_back_as_it_went_compact_and_in_ascii(original: Record) -> None:
    data = encode(original, KEY, ENORMOUS)
    assert decode(data, KEY) == original
    assert data.isascii()
    assert data == json.dumps(json.loads(data), separators=(",", ":")).encode()


@law
@given(
    records,
    st.lists(
        st.tuples(st.text("0123456789abcdef", max_size=32), amqp_text, naturals, naturals, naturals),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
    st.none() | naturals,
)
def test_what_letters_of_a_run_share_and_their_own_make_the_record_of_each(
    shared: Record, own: list[tuple[str, str, int, int, int]], has_id: bool, wait_ms: int | None
) -> None:
    """`error` and all else that is rare goes no short way."""
    shared = replace(
        shared, wait_ms=wait_ms, cc=None, parent=None, error=None, redrive_id=None, shadowed=None, declared=None,
        more=None, cut=False,
    )  # fmt: skip
    shared_props = shared.props
    user, expires = (None if value is None else value.encode(errors="surrogateescape") for value in shared_props[1:3])
    before, behind = run_of(
        standing(shared),
        told(shared.deaths),
        due_ms=shared.due_ms,
        wait_ms=wait_ms,
        first_ms=shared.first_death_ms,
        last_ms=shared.last_death_ms,
        props=properties_of("" if has_id else None, user, expires, shared_props.priority, shared_props.delivery_mode),
        has_id=has_id,
    )
    for letter_id, message_id, serial, crc32, size in own:
        text = json.dumps(message_id) if has_id else ""
        document = f"{before.decode()}{text}{behind}{letter_id}{SERIAL}{serial}{CRC32}{crc32}{SIZE}{size}{END}}}"
        props = shared_props._replace(message_id=message_id if has_id else None)
        single = replace(shared, id=letter_id, props=props, serial=serial, crc32=crc32, size=size)
        assert sign(document.encode(), KEY) == encode(single, KEY, ENORMOUS)


@law
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_many_digests_of_one_key_are_each_its_mac(body: bytes, other: bytes) -> None:
    begin = signer(KEY)
    digests = begin(), begin()
    for digest, data in zip(digests, (body, other), strict=True):
        digest.update(data)
    assert [digest.hexdigest() for digest in digests] == [mac(body, KEY), mac(other, KEY)]
    assert mac(body, KEY) != mac(body, KEY[:-1])


@law
@given(records, st.data())
def test_whatever_is_changed_breaks_the_signature(original: Record, data: st.DataObject) -> None:
    signed_bytes = bytearray(encode(original, KEY, ENORMOUS))
    at = data.draw(st.integers(0, len(signed_bytes) - 1))
    signed_bytes[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RecordError):
        decode(bytes(signed_bytes), KEY)


def test_another_routers_key_is_refused() -> None:
    with pytest.raises(RecordError, match="signature"):
        decode(encode(record(), b"o" * 32, ENORMOUS), KEY)


@law
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3), max_leaves=4
    ),
    st.sampled_from(["v", "first", "props", "digest", "deaths", "id", None]),
)
def test_signed_nonsense_is_refused_or_read_but_never_crashes(value: Any, member: str | None) -> None:
    data = signed({"x": value} if member is None else document(**{member: value}))
    with suppress(RecordError):
        decode(data, KEY)


@pytest.mark.parametrize(
    "value",
    [
        [],
        5,
        "text",
        None,
        {},
        {"v": "1"},
        {"v": None},
        document(props="text"),
        document(props=[1]),
        document(deaths=[[]]),
        document(deaths=5),
        document(first="x"),
    ],
)
def test_a_signed_document_of_another_shape_is_refused(value: Any) -> None:
    data = signed(value) if isinstance(value, dict) and value else sign(json.dumps(value).encode(), KEY)
    with pytest.raises(RecordError):
        decode(data, KEY)


@pytest.mark.parametrize(("version", "readable"), [(-1, False), (0, True), (1, True), (2, True), (3, False)])
def test_the_neighbouring_versions_are_read(version: int, readable: bool) -> None:
    new = {"something_new": {"from": "a later version"}, "flag": False, "nothing": None}
    data = signed(document(v=version, **new))
    if readable:
        assert decode(data, KEY) == record(more=new)
    else:
        with pytest.raises(RecordError, match=f"version {version}"):
            decode(data, KEY)


def test_what_a_later_version_wrote_is_written_again_under_our_own_version() -> None:
    came = document(v=2, something_new={"from": "a later version"})
    again = json.loads(encode(decode(signed(came), KEY), KEY, TOWARDS_CONSUMERS_BYTES))
    del again["mac"]
    assert again == came | {"v": 1}


def test_what_a_later_version_wrote_goes_after_the_error_and_before_any_death() -> None:
    original = record(deaths=(death("b"), death()), error={"type": "E" * 50}, more={"new": "x" * 50})
    without_error = replace(original, error=None, cut=True)
    size = len(encode(without_error, KEY, ENORMOUS))
    assert decode(encode(original, KEY, size), KEY) == without_error
    assert decode(encode(original, KEY, size - 1), KEY) == replace(without_error, more=None)


@pytest.mark.parametrize(
    ("other", "about"),
    [
        ({}, True),
        ({"crc32": 8}, False),
        ({"size": 4}, False),
        ({"message_id": "m-2"}, False),
        ({"message_id": None}, False),
    ],
)
def test_a_record_belongs_to_its_content_only(other: dict[str, Any], about: bool) -> None:
    content: dict[str, Any] = {"crc32": 7, "size": 3, "message_id": "m-1"} | other
    assert record().is_about(**content) is about


# Limits


def long_one(count: int, **more: Any) -> Record:
    oldest = death("first", "expired", time_s=1)
    deaths = (*(death(f"queue-{n}", time_s=1000 - n) for n in range(count)), oldest)
    return record(deaths=deaths, failed_queue="queue-0", first=First("first", "shop", ("k",), "expired"), **more)


@pytest.mark.parametrize("limit", [TOWARDS_CONSUMERS_BYTES, AT_REST_BYTES])
def test_over_its_size_the_error_goes_first(limit: int) -> None:
    large = record(error={"type": "E", "message": "x" * limit})
    assert decode(encode(large, KEY, limit), KEY) == replace(large, error=None, cut=True)


def test_of_two_deaths_the_newest_stays() -> None:
    two = record(deaths=(death("b"), death()), first=First("work", "x" * 100, ("k" * 200,), "rejected"))
    kept = decode(encode(two, KEY, 700), KEY)
    assert [entry.queue for entry in kept.deaths] == ["b"]


names = st.text("abcdefghij.-", min_size=1, max_size=100)


@law
@given(
    st.lists(
        st.builds(
            Death,
            names,
            reasons,
            st.integers(1, 10**6),
            st.integers(0, 2**32),
            names,
            st.lists(names, max_size=9).map(tuple),
        ),
        min_size=1,
        max_size=12,
        unique_by=lambda entry: entry.key,
    ),
    names,
    st.none() | st.builds(First, names, names, st.lists(names, max_size=3).map(tuple), reasons),
    st.none() | st.dictionaries(st.just("message"), st.text(max_size=500), min_size=1),
    st.dictionaries(names, names, max_size=9),
    st.sampled_from([TOWARDS_CONSUMERS_BYTES, AT_REST_BYTES]),
)
def test_whatever_is_in_it_the_record_keeps_its_limit_and_its_newest_death(
    deaths: list[Death],
    message_id: str,
    first: First | None,
    error: dict[str, str] | None,
    shadowed: dict[str, str],
    limit: int,
) -> None:
    original = record(
        deaths=tuple(deaths),
        failed_queue=deaths[0].queue,
        first=first,
        error=error,
        shadowed=shadowed or None,
        cc=deaths[-1].routing_keys,
        props=Props(message_id=message_id),
        due_ms=1_700_000_000_000,
    )
    data = encode(original, KEY, limit)
    kept = decode(data, KEY)
    assert len(data) <= limit
    assert kept.deaths[0][:5] == deaths[0][:5]
    assert kept.is_about(crc32=7, size=3, message_id=message_id)
    assert kept == original or kept.cut


def test_a_history_of_a_thousand_queues_is_cut_in_no_time() -> None:
    started = time.process_time()
    encode(long_one(1000), KEY, TOWARDS_CONSUMERS_BYTES)
    assert time.process_time() - started < 0.2
