"""Each message of the journal is signed, and nobody without the key can write another or carry one elsewhere."""

import asyncio
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.signature import HEADER, Signature, Signer, judged
from tests.journal import stream
from tests.journal.conftest import NAMES, Desk, soon
from tests.support.vhost import Vhost

KEYS = st.binary(min_size=16, max_size=32)
NAMED = st.text(max_size=20)


@given(KEYS, NAMED, NAMED, st.binary())
def test_what_a_router_signed_is_known_again(key: bytes, vhost: str, name: str, body: bytes) -> None:
    signer = Signer(key, vhost, name)
    assert signer.judge(body, signer.sign(body)) is Signature.OK
    assert signer.judge(body + b"x", signer.sign(body)) is Signature.BAD
    assert signer.judge(body, None) is Signature.NONE
    assert judged(None, body, signer.sign(body)) is Signature.UNKNOWN
    assert key.hex().encode() not in signer.sign(body)


@given(KEYS, st.tuples(NAMED, NAMED), st.tuples(NAMED, NAMED), st.binary())
def test_a_message_is_worth_nothing_in_another_stream_or_vhost(
    key: bytes, here: tuple[str, str], there: tuple[str, str], body: bytes
) -> None:
    signature = Signer(key, *here).sign(body)
    assert (Signer(key, *there).judge(body, signature) is Signature.OK) == (here == there)


@given(KEYS, KEYS, st.binary())
def test_another_key_is_told_from_a_wrong_signature(key: bytes, other: bytes, body: bytes) -> None:
    verdict = Signer(other, "/", "j").judge(body, Signer(key, "/", "j").sign(body))
    assert verdict is (Signature.OK if key == other else Signature.UNKNOWN)


@given(st.binary(max_size=80), st.binary(), KEYS)
def test_no_header_of_somebody_else_is_an_error_or_true(signature: bytes, body: bytes, key: bytes) -> None:
    assert Signer(key, "/", "j").judge(body, signature) in {Signature.UNKNOWN, Signature.BAD}


def headers(url: str) -> list[tuple[bytes, Any]]:
    """Body and headers of every message."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    messages: list[tuple[bytes, Any]] = []
    for method, properties, body in channel.consume(
        stream.NAME, arguments={"x-stream-offset": "first"}, inactivity_timeout=0.5
    ):
        if method is None:
            break
        messages.append((body, properties.headers))
        channel.basic_ack(method.delivery_tag)
    connection.close()
    return messages


@pytest.mark.parametrize("key", [b"k" * 32, None], ids=["with the key", "without"])
async def test_every_message_carries_its_signature(vhost: Vhost, key: bytes | None) -> None:
    desk = Desk(vhost)
    desk.journal.sign_with(key)
    async with desk.session():
        await soon(lambda: desk.journal.is_working)
        desk.tell_all(range(1250))
        assert await desk.journal.drain(10) == 0
    messages = await asyncio.to_thread(headers, vhost.amqp_url)
    assert len(messages) >= 3
    if key is None:
        assert all(HEADER not in fields for _, fields in messages)
        return
    signer = Signer(key, vhost.name, NAMES.journal)
    assert {signer.judge(body, fields[HEADER].encode()) for body, fields in messages} == {Signature.OK}
