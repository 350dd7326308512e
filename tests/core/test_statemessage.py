"""Reading the state queue, by law: never an error, and never another key than the first."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.core import statemessage
from dlx_router.core.statemessage import Claim, First, Hello, Junk, Key, Sealed, read

SECRETS: Final = st.binary(min_size=32, max_size=32)
ANY: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
TEXTS: Final = st.binary(max_size=48).map(lambda key: base64.b64encode(key).decode()) | ANY
DOCUMENTS: Final = st.fixed_dictionaries(
    {"kind": st.sampled_from(["key", "hello", "leader", "ledger"]) | ANY},
    optional={
        "nonce": st.text() | ANY,
        "claim": st.fixed_dictionaries({"router": st.text() | ANY, "url": ANY, "nonce": ANY, "mac": st.text() | ANY})
        | ANY,
        "v": st.sampled_from([0, 1, 1.0, 2, True, "1"]) | ANY,
        "key": TEXTS,
        "instance": st.text() | ANY,
    },
).map(lambda document: json.dumps(document).encode())
KEYS: Final = SECRETS.map(lambda secret: statemessage.key(secret, "i", 1))
BODIES: Final = (
    st.binary(max_size=100)
    | KEYS
    | DOCUMENTS
    | ANY.map(lambda value: json.dumps(value).encode())
    | st.builds(lambda a, b: a[:-1] + b"," + b[1:], DOCUMENTS, DOCUMENTS)  # each name twice
    | st.sampled_from([b"[" * 60_000, b"9" * 60_000, b"{" + b" " * 70_000 + b"}", b"\xff\xfe\x00"])
)


def adopted(bodies: Sequence[bytes]) -> First | None:
    first: First | None = None
    for body in bodies:
        message = read(body, first)
        if isinstance(message, Key | Sealed):
            first = message
    return first


@given(BODIES, st.none() | SECRETS.map(Key) | st.binary().map(Sealed))
@example(b"[" * 60_000, None)
@example(b'{"kind":"key"}', Key(b"k" * 32))
def test_reading_never_raises_and_gives_no_other_key_than_the_first(body: bytes, first: First | None) -> None:
    message = read(body, first)
    assert not statemessage.is_answer(body, "i", b"k")
    assert statemessage.claimed(body, "i", {"n"}, b"k") is None
    assert not isinstance(message, Hello) or not message.is_by(b"k")
    assert isinstance(message, Hello | Key | Sealed | Junk)
    if first is not None and isinstance(message, Key | Sealed):
        assert message == first


@given(SECRETS, st.lists(BODIES, max_size=8))
def test_whatever_comes_behind_the_first_key_it_stays_the_key(secret: bytes, behind: list[bytes]) -> None:
    assert adopted([statemessage.key(secret, "i", 1), *behind]) == Key(secret)


@given(st.lists(BODIES, max_size=6), SECRETS)
def test_a_key_that_cannot_be_decoded_is_not_passed_over(before: list[bytes], secret: bytes) -> None:
    sealed = b'{"kind":"key","v":2,"key":"?"}'
    known = adopted(before)
    assert adopted([*before, sealed, statemessage.key(secret, "i", 1)]) == (known or Sealed(sealed))


@given(SECRETS, st.text(max_size=30))
def test_what_routers_write_is_read_as_what_it_is(secret: bytes, instance: str) -> None:
    assert read(statemessage.key(secret, instance, 5), None) == Key(secret)
    assert read(statemessage.key(secret, instance, 6), Key(secret)) == Key(secret)
    assert read(statemessage.hello(instance), None) == Hello(instance)
    signed = read(statemessage.hello(instance, secret), None)
    assert isinstance(signed, Hello)
    assert signed.is_by(secret)
    assert signed.is_by(bytes(32)) == (secret == bytes(32))
    assert not Hello(instance).is_by(secret)
    answer = statemessage.answer(instance, secret)
    assert statemessage.is_answer(answer, instance, secret)
    assert not statemessage.is_answer(answer, f"{instance}x", secret)
    assert isinstance(read(answer, None), Junk)


@pytest.mark.parametrize(
    "other",
    [
        {"v": 2}, {"v": True}, {"v": None}, {"key": None}, {"key": ""}, {"key": "!" * 44}, {"key": "a"}, {"key": "é"},
        {"key": base64.b64encode(b"k" * 31).decode()}, {"key": base64.b64encode(b"k" * 33).decode()},
    ],
)  # fmt: skip
def test_a_key_of_any_other_form_is_kept_as_it_came_and_never_decoded(other: dict[str, Any]) -> None:
    body = json.dumps({**json.loads(statemessage.key(b"k" * 32, "i", 1)), **other}).encode()
    assert read(body, None) == Sealed(body)
    assert read(body, Sealed(body)) == Sealed(body), "the first comes again whenever the queue is read anew"
    assert isinstance(read(body, Sealed(b"another")), Junk)
    assert isinstance(read(body, Key(b"k" * 32)), Junk)


NONCES: Final = st.text(min_size=1, max_size=16)


@given(SECRETS, st.text(max_size=30), NONCES, st.text(max_size=30), st.text(max_size=60))
def test_a_claim_is_believed_by_whom_it_was_told_to_in_answer_to_what_was_asked(
    secret: bytes, instance: str, nonce: str, router: str, url: str
) -> None:
    claim = Claim(router, url)
    asked = read(statemessage.hello(instance, secret, nonce), None)
    assert isinstance(asked, Hello)
    assert (asked.is_by(secret), asked.nonce) == (True, nonce)
    answer = statemessage.answer(instance, secret, claim, nonce)
    assert statemessage.is_answer(answer, instance, secret), "routers that know no claims understand it"
    assert statemessage.claimed(answer, instance, {nonce}, secret) == claim
    assert statemessage.claimed(answer, f"{instance}x", {nonce}, secret) is None, "told to another"
    assert statemessage.claimed(answer, instance, {f"{nonce}x"}, secret) is None, "an answer of before"
    other = bytes(32) if secret != bytes(32) else b"x" * 32
    assert statemessage.claimed(answer, instance, {nonce}, other) is None, "of another key"
    assert statemessage.claimed(statemessage.answer(instance, secret), instance, {nonce, ""}, secret) is None


@given(SECRETS, st.sampled_from(["router", "url", "nonce", "mac"]), st.text(max_size=20))
def test_a_claim_that_was_changed_is_none(secret: bytes, member: str, text: str) -> None:
    document = json.loads(statemessage.answer("i", secret, Claim("r", "http://h:1"), "n"))
    is_same = document["claim"][member] == text
    document["claim"][member] = text
    claim = statemessage.claimed(json.dumps(document).encode(), "i", {"n", text}, secret)
    assert (claim is not None) == is_same
