"""Filters: what they see of what a policy redacts, and what they may cost."""

import json
import time
from threading import Event, Thread
from typing import Any, Final, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.condition import view
from dlx_router.core.places import looked_up, parsed, place
from dlx_router.journal.privacy import HIDDEN, Rule, redacted, without
from dlx_router.redrive.selection import compiled
from dlx_router.redrive.task import TaskError
from tests.core.core_samples import NOW, letter
from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, pour
from tests.support.eventually import eventually

RULE: Final = Rule(redact=("/card", "/user/name", "X-Token"))
BODY: Final = {"card": "4111", "user": {"name": "ann", "id": 7}, "n": 3}
SLOW: Final = 'body("/l").exists(i, i == "x")'


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('body("/card") == "4111"', False),
        ('body("/card") == "***"', True),
        ('body("/card").startsWith("4")', False),
        ('body("").card == "4111"', False),
        ('body("/user").name == "ann"', False),
        ('body("/user/name").matches("^a")', False),
        ('body("/user/id") == 7 && body("/n") == 3', True),
        ('header("x-token") == "secret"', False),
        ('header("X-TOKEN").size() == 6', False),
        ('header("x-kind") == "a" && reason == "rejected"', True),
    ],
)
def test_a_filter_sees_what_is_redacted_as_people_do(text: str, holds: bool) -> None:  # noqa: FBT001 - a column
    headers = {"x-token": "secret", "X-TOKEN": "secret", "x-kind": "a"}
    dead = letter(header=headers.get, body=looked_up(json.dumps(BODY).encode()))
    assert compiled(text, lambda _letter: RULE)(dead) is holds


KEYS: Final = st.sampled_from(["a", "b", "c/d", "~", "0"])
DOCUMENTS: Final = st.recursive(
    st.integers(0, 3) | st.text("xy", max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=12,
)
POINTERS: Final = st.lists(KEYS.map(lambda key: key.replace("~", "~0").replace("/", "~1")), max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)


@given(DOCUMENTS, st.lists(POINTERS.filter(bool), max_size=3), POINTERS)
def test_a_filter_sees_of_a_body_what_the_journal_shows(document: Any, redact: list[str], pointer: str) -> None:
    body = json.dumps(document).encode()
    seen = redacted(Rule(redact=tuple(redact)), view(letter(body=looked_up(body)), 1, NOW))
    shown, _ = without(body, redact)
    assert shown is not None
    assert seen.body(pointer) == looked_up(shown)(pointer)
    assert parsed(body) == document, "what the letter itself holds stays"
    assert place(parsed(shown), pointer) is not HIDDEN or any(pointer.startswith(hidden) for hidden in redact)


def test_a_filter_that_takes_too_long_is_rejected_with_the_reason_and_a_cheap_one_is_not() -> None:
    large = letter(body=looked_up(json.dumps({"l": ["y"] * 9_000}).encode()))
    cheap = compiled('body("/l/0") == "y" && reason == "rejected"')
    assert all(cheap(large) for _ in range(500))
    slow = compiled(SLOW)
    with pytest.raises(TaskError, match=r"^filter: takes [0-9.]+ ms for a message, at most 1 ms is possible"):
        all(not slow(large) for _ in range(100))
    began = time.monotonic()
    for _ in range(1000):
        with pytest.raises(TaskError, match="filter: takes"):
            slow(large)
    assert time.monotonic() - began < 2, "4 s at least if anything were evaluated"


class _Livez:
    """Asks for /livez again and again; `longest_s`: the longest that an answer took."""

    def __init__(self, shop: Shop) -> None:
        self.longest_s, self._shop, self._over = 0.0, shop, Event()
        self._thread = Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._over.wait(0.02):
            began = time.monotonic()
            assert self._shop.router.ask("/livez")[0] == 200
            self.longest_s = max(self.longest_s, time.monotonic() - began)


def test_a_slow_filter_neither_holds_up_the_router_nor_goes_on(shop: Shop) -> None:
    """5,000 letters of 4 ms each kept /livez, and all other letters, waiting for 20 s."""
    queue = shop.failed("slow.a", ["0"])
    shop.amqp.take(queue)
    pour(shop.amqp, queue, [json.dumps({"l": list(range(95))})] * 5_000, DEAD)
    text = 'body("/l").exists(i, body("/l").exists(j, i == j + 1000))'
    with _Livez(shop) as livez:
        stopped = shop.ends(shop.start(queue, filter=text, dry_run=True), "stopped", within=100)
        assert "filter: takes" in stopped["why"], stopped
        answer = shop.receive(queue, filter=text, max=50, wait=10)
        assert (answer.status_code, "filter: takes" in answer.json()["error"]) == (409, True), answer.text
    assert livez.longest_s < 8, "0.1 s on a quiet machine"
    eventually(lambda: shop.amqp.depth(queue) == 5_000, 20)


def test_no_answer_depends_on_what_is_redacted(shop: Shop) -> None:
    queue = shop.failed("redacted.a", ['{"card": "4111", "id": 1}'])
    assert not shop.receive(queue, filter='body("/card") == "4111"').json()["letters"]
    for text, count in (('body("/card") == "4111"', 0), ('body("/card") == "***" && body("/id") == 1', 1)):
        done = shop.ends(shop.start(queue, filter=text, dry_run=True), within=30)
        assert done["counts"]["sent"] == count, text
