"""Signatures of the journal: of this body, in this stream of this vhost, with this key, and of nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.signature import Signature, Signer, judged

KEY = b"k" * 32
texts = st.text(max_size=8) | st.binary(max_size=8).map(lambda raw: raw.decode(errors="surrogateescape"))


@given(texts, texts, st.binary(max_size=40))
def test_what_was_signed_is_known(vhost: str, stream: str, body: bytes) -> None:
    signer = Signer(KEY, vhost, stream)
    assert signer.judge(body, signer.sign(body)) is Signature.OK


@given(texts, texts, texts, texts, st.binary(max_size=8), st.binary(max_size=8))
def test_nothing_else_is(vhost: str, stream: str, other_vhost: str, other: str, body: bytes, another: bytes) -> None:
    signature = Signer(KEY, other_vhost, other).sign(another)
    same = (vhost, stream, body) == (other_vhost, other, another)
    assert Signer(KEY, vhost, stream).judge(body, signature) is (Signature.OK if same else Signature.BAD)


@pytest.mark.parametrize(
    ("said", "with_key", "without"),
    [
        (None, Signature.NONE, Signature.NONE),
        (b"", Signature.UNKNOWN, Signature.UNKNOWN),
        (b"\xff:\xff", Signature.UNKNOWN, Signature.UNKNOWN),
        (Signer(b"x" * 32, "/", "s").sign(b"body"), Signature.UNKNOWN, Signature.UNKNOWN),
        (Signer(KEY, "/", "s").sign(b"body")[:-1], Signature.BAD, Signature.UNKNOWN),
        (Signer(KEY, "/", "s").sign(b"body"), Signature.OK, Signature.UNKNOWN),
    ],
)
def test_a_reader_says_what_it_can_know(said: bytes | None, with_key: Signature, without: Signature) -> None:
    assert judged(Signer(KEY, "/", "s"), b"body", said) is with_key
    assert judged(None, b"body", said) is without
