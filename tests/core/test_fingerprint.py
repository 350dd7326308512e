"""Groups of letters: what varies is masked, what tells failures apart is not, and an id is the same for ever."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.fingerprint import (
    _LIST,
    _VARYING,
    MESSAGE_CHARS,
    _mask,
    application_frame,
    fingerprint,
    masked,
    of_event,
)
from tests.core.core_samples import hard_law, law

GOLDEN = "g1-57aeb76bc1689126"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("order 1234 not found", "order <n> not found"),
        ("customer 8f3a gone", "customer <n> gone"),
        ("commit deadbeef and 0xDEAD12", "commit <n> and <n>"),
        ("id 6f9619ff-8b86-d011-b42d-00c04fc964ff.", "id <uuid>."),
        ("from 10.0.0.1:5672 and [fe80::1%eth0]:80", "from <address> and <address>"),
        ("card 00:1a:2b:3c:4d:5e", "card <address>"),
        ("at 2026-11-21T12:04:02.123Z", "at <time>"),
        ("at 2026-11-21 12:04:02+01:00, again", "at <time>, again"),
        ("Sat, 21 Nov 2026 12:04:02 GMT", "<time>"),
        ("Sat Nov 21 12:04:02 UTC 2026 late", "<time> late"),
        ("mail to a.b+c@shop.example failed", "mail to <email> failed"),
        ("took 30s, 1.5 ms, 12%", "took <n>s, <n> ms, <n>%"),
        ("ids [1, 2, 3]", "ids [<n>]"),
        ("-5 and 1e-05 and 1,234.50", "<n> and <n> and <n>"),
        ("ORD1234 by v2", "ORD<n> by v<n>"),
        ("KeyError: 'order_17'", "KeyError: 'order_<n>'"),
        ("std::vector in café", "std::vector in café"),
        ("two\n  lines\t and", "two lines and"),
        ("٣ letters", "<n> letters"),
        ("", ""),
    ],
)
def test_what_varies_is_masked_and_nothing_else(said: str, kept: str) -> None:
    assert masked(said) == kept


@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        ("orders/handler.py:42 in handle_v2", "orders/handler.py in handle_v2"),
        ("com.acme.Order.run(Order.java:99)", "com.acme.Order.run(Order.java)"),
        (
            "java.lang.NullPointerException: x\n\tat java.util.Foo.bar(Foo.java:12)\n\tat com.acme.Order.run(O.java:9)",
            "com.acme.Order.run(O.java)",
        ),
        (
            (
                'Traceback (most recent call last):\n  File "/app/a.py", line 3, in top\n    x()\n'
                '  File "/app/b.py", line 9, in inner\n    y()\n'
                '  File "/v/lib/python3.11/site-packages/z.py", line 5, in g\n    z()\nKeyError: 1'
            ),
            'File "/app/b.py", in inner',
        ),
        ("Error: x\n    at Object.a (node:fs:10:2)\n    at pay (/srv/pay.js:7:1)", "pay (/srv/pay.js)"),
        ("at java.util.Foo.bar(Foo.java:12)\nat java.util.Foo.baz(Foo.java:13)", "java.util.Foo.bar(Foo.java)"),
        ("\n \n", ""),
    ],
)
def test_the_frame_is_the_top_one_of_the_application(stack: str, frame: str) -> None:
    assert application_frame(stack) == frame


def test_an_id_never_changes() -> None:
    group = fingerprint("/", "orders", "rejected", error_type="KeyError", message="order 12")
    assert group == (GOLDEN, "/", "orders", "rejected", "KeyError", "", "order <n>")


def test_each_part_tells_groups_apart() -> None:
    parts: dict[str, Any] = {"error_type": "E", "frame": "a.py in f", "message": "m"}
    ids = {fingerprint("/", "q", "rejected", **parts).id}
    ids |= {fingerprint("/", "q", "rejected", **{**parts, name: "other"}).id for name in parts}
    ids |= {fingerprint(*where, **parts).id for where in (("v", "q", "rejected"), ("/", "p", "rejected"))}
    assert len(ids | {fingerprint("/", "q", "expired", **parts).id}) == 7


@pytest.mark.parametrize("odd", [{}, {"error": 7, "vhost": None}, {"error": {"type": 3, "message": [], "frame": {}}}])
def test_an_event_of_another_shape_has_a_group_too(odd: dict[str, Any]) -> None:
    assert of_event(odd).id == fingerprint("", "", "").id


def test_only_a_quarantined_letter_is_grouped_by_what_was_said_of_it() -> None:
    event = {"vhost": "/", "failed_queue": "q", "reason": "unknown", "detail": "byte 17 is no table"}
    assert of_event(event | {"kind": "quarantined"}).message == "byte <n> is no table"
    assert of_event(event | {"kind": "parked"}).message == ""


@given(st.text(max_size=300))
@law
def test_masking_is_total_short_and_made_once(text: str) -> None:
    once = masked(text)
    assert len(once) <= MESSAGE_CHARS
    assert not any(char.isdecimal() for char in once)


SAID = """order deadbeef 0xDEAD 10.0.0.1:5672 ::1 [fe80::1%eth0]:80 00:1a:2b:3c:4d:5e 12:04:02 12:04 Nov 21 2026
 Sat, Z UTC +01:00 2026-11-21 T 1.5ms 12% 1e-05 e5 -5 ORD1234 order_17 a@b.example <n> <n>, [1, é٣ ² _ , ; :"""
PIECES = st.sampled_from(SAID.split())


@given(st.lists(st.tuples(PIECES, st.sampled_from(["", " ", "  "])), max_size=9), st.text(max_size=9))
@hard_law
def test_token_by_token_is_what_the_whole_message_gives(pieces: list[tuple[str, str]], other: str) -> None:
    """What is said token by token is faster, and an id that is in archives already must not change by that."""
    text = " ".join(("".join(map("".join, pieces)) + other).split())
    whole = _LIST.sub(r"\1", _VARYING.sub(_mask, text))[:MESSAGE_CHARS]
    assert masked(text) == whole


@pytest.mark.parametrize("text", ["a" * 10**6, "1" * 10**6, "a@" * 10**5, ":" * 10**6, "1:" * 10**5, "ab.ab@" * 10**5])
@pytest.mark.timeout(60)
def test_no_message_takes_long(text: str) -> None:
    assert len(masked(text)) <= MESSAGE_CHARS
    assert len(application_frame(text)) <= MESSAGE_CHARS


# -- against a seeded generator's truth -------------------------------------------------------------------------------
