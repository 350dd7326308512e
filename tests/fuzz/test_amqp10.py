"""The sections of an AMQP 1.0 message, as hostile as can be: looking at them never fails and never takes long."""

import contextlib
import time

from hypothesis import strategies as st

from dlx_router.wire.amqp10 import Amqp10Error, Value, encode, kept, objection
from tests.fuzz.budget import fuzz
from tests.wire.test_amqp10 import VALUES

CODES = st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x00])
WHOLE = st.tuples(CODES, VALUES).map(lambda pair: encode(Value("described", (Value("ulong", pair[0]), pair[1]))))
SECTIONS = st.lists(st.one_of(WHOLE, st.binary(max_size=40)), max_size=6).map(b"".join)


def looked_at(message: bytes, cuts: list[tuple[int, int]]) -> None:
    broken = bytearray(message)
    for at, byte in cuts:
        if broken:
            broken[at % len(broken)] = byte
    began = time.perf_counter()
    for data in (message, bytes(broken)):
        for version in ((4, 0), (4, 3)):
            assert isinstance(objection(data, version), str)
        with contextlib.suppress(Amqp10Error):
            kept(data, {"x-opt-why": "because"})
    assert time.perf_counter() - began < 10


def test_sections_of_any_message() -> None:
    assert fuzz(looked_at, SECTIONS, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3))
