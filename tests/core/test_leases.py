"""Leases: one holder at a time; what is done is never handed out again, what is not comes back; kills included."""

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dlx_router.core.leases import (
    MAX_CHARS,
    REMOVED,
    Claims,
    Ended,
    Lease,
    LeaseBusy,
    LeaseOver,
    Leases,
    NoRoom,
    Removed,
    handle_of,
    longest_s,
    verified,
    vhost_of,
)
from tests.core.core_samples import KEY, law
from tests.support.thoroughness import THOROUGH

CLAIMS = st.builds(Claims, st.text(), st.integers(0, 1 << 60), st.text(max_size=40), st.text(max_size=40))


def lease(name: str = "a", *, by: str = "me", size: int = 1, until_ms: int = 100) -> Lease[str]:
    return Lease(name, by, f"key-{name}", size, until_ms, "held")


# -- what is held ------------------------------------------------------------------------------------------------


def test_a_lease_is_found_until_it_ends_and_then_says_how_it_ended() -> None:
    book: Leases[str] = Leases()
    book.hold(held := lease())
    assert book.find("a") is held
    assert book.end(held, Ended.DONE)
    with pytest.raises(LeaseOver, match="is done, and gone") as over:
        book.find("a")
    assert over.value.how is Ended.DONE
    assert not book.end(held, Ended.EXPIRED), "what it ended by stays true"
    with pytest.raises(LeaseOver, match="done"):
        book.find("a")


def test_a_lease_is_in_the_book_as_long_as_it_is_held() -> None:
    book: Leases[str] = Leases()
    book.hold(held := lease())
    assert ("a" in book, "b" in book, book.how_ended("a")) == (True, False, None)
    book.end(held, Ended.EXPIRED)
    assert ("a" in book, book.how_ended("a")) == (False, Ended.EXPIRED)


def test_what_another_leader_says_is_learnt_where_nothing_is_known() -> None:
    book: Leases[str] = Leases()
    book.hold(lease("held"))
    book.hold(over := lease("over"))
    book.end(over, Ended.RELEASED)
    for name in ("held", "over", "theirs"):
        book.learn(name, Ended.DONE)
    assert [book.how_ended(name) for name in ("held", "over", "theirs")] == [None, Ended.RELEASED, Ended.DONE]
    assert book.find("held").id == "held", "a lease that is held has not ended, whoever says so"
    with pytest.raises(LeaseOver, match="is done, and gone"):
        book.find("theirs")


def test_a_lease_that_nobody_remembers_has_ended() -> None:
    with pytest.raises(LeaseOver) as over:
        Leases[str]().find("never was")
    assert over.value.how is None


def test_what_is_being_ended_does_not_run_out_and_is_not_ended_twice() -> None:
    book: Leases[str] = Leases()
    book.hold(lease(until_ms=5))
    held = book.begin_end("a")
    assert book.due(9) == []
    with pytest.raises(LeaseBusy):
        book.begin_end("a")
    with pytest.raises(LeaseBusy):
        book.extend("a", 20)
    book.keep(held)
    assert book.due(9) == [held]


def test_no_more_are_held_than_fit_of_all_of_one_and_in_bytes() -> None:
    book: Leases[str] = Leases(most=3, most_of_one=2, most_bytes=10)
    book.hold(lease("a", size=4))
    with pytest.raises(NoRoom, match="4 bytes"):
        book.hold(lease("large", size=7))
    book.hold(lease("b", size=4))
    with pytest.raises(NoRoom, match="'me' holds 2"):
        book.hold(lease("c"))
    book.hold(lease("c", by="you"))
    with pytest.raises(NoRoom, match="3 letters are leased"):
        book.hold(lease("d", by="she"))
    book.end(book.find("a"), Ended.RELEASED)
    book.hold(lease("d", by="me"))
    assert (len(book), book.held_bytes) == (3, 6)


HALF_HOUR: Final = 1_800_000


@pytest.mark.parametrize(
    ("kind", "version", "timeout_ms", "expires_ms", "longest"),
    [
        ("classic", (3, 10), None, None, 1500),
        ("quorum", (4, 3), None, None, 1500),
        ("classic", (4, 3), None, None, 43_200),
        (None, (4, 3), None, None, 1500),
        ("quorum", (4, 0), 14 * 3_600_000, None, 42_000),
        ("quorum", (4, 0), 24 * 3_600_000, None, 43_200),
        ("quorum", (3, 10), 14 * 3_600_000, None, 1500),
        ("quorum", (4, 3), 60_000, None, 50),
        ("classic", (4, 3), None, HALF_HOUR, 1500),
        ("classic", (4, 3), None, 100, 1),
    ],
)
def test_a_lease_ends_before_the_broker_takes_the_letter_back(
    kind: str | None, version: tuple[int, ...], timeout_ms: int | None, expires_ms: int | None, longest: int
) -> None:
    assert longest_s(kind, version, timeout_ms=timeout_ms, expires_ms=expires_ms) == longest


# -- what the broker brings back ---------------------------------------------------------------------------------


def test_a_twin_that_was_never_delivered_is_not_taken_for_what_was_removed() -> None:
    removed = Removed()
    removed.add("key", "lease", 1)
    assert removed.redelivered_by("key", 1, redelivered=False) is None
    assert removed.redelivered_by("other", 2, redelivered=True) is None


def test_what_comes_back_is_known_once_and_again_after_the_next_loss() -> None:
    removed = Removed()
    removed.add("key", "lease", 1)
    removed.add("key", "lease", 1)
    assert removed.redelivered_by("key", 1, redelivered=True) == "lease", "another node of the cluster forgot the ack"
    assert removed.redelivered_by("key", 1, redelivered=True) is None, "a twin"
    assert removed.redelivered_by("key", 2, redelivered=False) == "lease", "that ack was lost too"
    assert removed.redelivered_by("key", 2, redelivered=True) is None
    assert (removed.redelivered_by("key", 3, redelivered=False), len(removed)) == ("lease", 1)


def test_what_could_not_be_removed_again_is_known_once_more() -> None:
    removed = Removed()
    removed.add("key", "lease", 1)
    assert removed.redelivered_by("key", 1, redelivered=True) == "lease"
    removed.not_again("key", "lease")
    assert removed.redelivered_by("key", 1, redelivered=True) == "lease"
    assert removed.redelivered_by("key", 1, redelivered=True) is None


def test_two_removals_of_twins_are_known_twice() -> None:
    removed = Removed()
    removed.add("key", "a", 1)
    removed.add("key", "b", 1)
    assert [removed.redelivered_by("key", 2, redelivered=False) for _ in range(3)] == ["a", "b", None]


# -- handles -----------------------------------------------------------------------------------------------------


@law
@given(CLAIMS)
def test_a_handle_says_what_it_was_made_of_to_who_has_the_key(claims: Claims) -> None:
    handle = handle_of(claims, KEY)
    assert verified(handle, KEY) == claims
    assert vhost_of(handle) == claims.vhost
    assert verified(handle, b"another key" * 3) is None
    assert handle.replace(".", "").replace("-", "").replace("_", "").isalnum(), "fit for a path"


@law
@given(st.text())
def test_nothing_else_is_a_handle(text: str) -> None:
    assert verified(text, KEY) is None


def test_a_handle_that_was_changed_is_none() -> None:
    mine = handle_of(Claims("/", 1, "lease", "me"), KEY)
    yours = handle_of(Claims("/", 1, "lease", "you"), b"k2" * 16)
    data, mac = yours.split(".")[0], mine.split(".")[1]
    assert verified(f"{data}.{mac}", KEY) is None
    assert verified(f"{mine}0", KEY) is None
    assert verified(f"{mine.split('.')[0]}.é", KEY) is None


def test_what_is_too_long_for_a_handle_is_none_though_it_is_signed() -> None:
    """It comes in by the path of a request, before anybody is known."""
    longest = max(range(MAX_CHARS), key=lambda size: (len(_handle(size)) <= MAX_CHARS, size))
    assert verified(_handle(longest), KEY) is not None
    assert vhost_of(_handle(longest)) == "/"
    assert verified(_handle(longest + 1), KEY) is None
    assert vhost_of(_handle(longest + 1)) is None


def _handle(size: int) -> str:
    return handle_of(Claims("/", 1, "lease", "x" * size), KEY)


# -- the law -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Letter:
    """In the broker. Twins share a key."""

    number: int
    key: str
    redelivered: bool = False
    handed: list[str] = field(default_factory=list)


class Histories(RuleBasedStateMachine):
    """A queue, workers, a router and a broker, both killed at any moment; acks may be lost with the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[Letter] = []
        self.held: dict[int, Letter] = {}  # unacked on the router's connection
        self.acked: list[Letter] = []  # which a killed broker may bring back
        self.parked: list[Letter] = []
        self.letters: list[Letter] = []
        self.done: set[int] = set()  # confirmed to who said so
        self.removed_keys: set[str] = set()  # of what the journal says is removed
        self.journal: list[tuple[str, str]] = []
        self.now = self.leases_made = self.epoch = 0
        self.book: Leases[Letter] = Leases(most=5, most_of_one=3)
        self.removed = Removed()

    # -- what happens --

    @rule(twin=st.integers(0, 4))
    def dies(self, *, twin: int) -> None:
        number = len(self.letters)
        other = self.letters[-1] if twin == 4 and self.letters else None
        letter = Letter(number, other.key if other else f"key-{number}")
        self.letters.append(letter)
        self.queue.append(letter)

    @rule(by=st.sampled_from(["me", "you"]), visibility=st.integers(1, 20))
    def receives(self, by: str, visibility: int) -> None:
        if not self.queue or self.book.why_full(by):
            return
        letter = self.queue.pop(0)
        if self.removed.redelivered_by(letter.key, self.epoch, redelivered=letter.redelivered) is not None:
            self.parked.append(letter)
            return
        self.leases_made += 1
        name = f"lease-{self.leases_made}"
        assert letter.number not in self.held, "one holder at a time"
        assert letter.number not in self.done or self._has_twin(letter), "done, and handed out again"
        letter.handed.append(name)
        self.held[letter.number] = letter
        self.book.hold(Lease(name, by, letter.key, 1, self.now + visibility, letter))

    @precondition(lambda self: len(self.book) > 0)
    @rule(data=st.data(), killed=st.sampled_from(["", "", "", "untold", "told", "acked"]))
    def says_done(self, data: st.DataObject, killed: str) -> None:
        """The router may be killed between any two of its steps, and the journal may not take it."""
        lease = self.book.begin_end(data.draw(st.sampled_from([entry.id for entry in self.book])))
        if killed == "untold":
            self.book.keep(lease)
            return
        self.journal.append((lease.key, lease.id))
        self.removed_keys.add(lease.key)
        self.removed.add(lease.key, lease.id, self.epoch)
        if killed == "told":
            self.router_is_killed()
            return
        self.acked.append(self.held.pop(lease.held.number))
        if killed == "acked":
            self.router_is_killed()
            return
        self.book.end(lease, Ended.DONE)
        self.done.add(lease.held.number)

    @precondition(lambda self: len(self.book) > 0)
    @rule(data=st.data())
    def releases(self, data: st.DataObject) -> None:
        self._returned(
            self.book.begin_end(data.draw(st.sampled_from([entry.id for entry in self.book]))), Ended.RELEASED
        )

    @rule(ms=st.integers(1, 10))
    def time_goes_on(self, ms: int) -> None:
        self.now += ms
        for lease in self.book.due(self.now):
            self._returned(lease, Ended.EXPIRED)

    @rule()
    def router_is_killed(self) -> None:
        self._back([*self.held.values()])
        self.held, self.epoch = {}, self.epoch + 1
        self.book = Leases(most=5, most_of_one=3)
        self.removed = Removed()
        for key, name in self.journal:
            self.removed.add(key, name, -1)
            self.book.learn(name, Ended.DONE)

    @rule(data=st.data(), flags=st.booleans())
    def broker_is_killed(self, *, data: st.DataObject, flags: bool) -> None:
        numbers = data.draw(st.sets(st.sampled_from([letter.number for letter in self.acked]))) if self.acked else set()
        lost = [letter for letter in self.acked if letter.number in numbers]
        self.acked = [letter for letter in self.acked if letter not in lost]
        self._back([*self.held.values(), *lost])
        for letter in self.queue:
            letter.redelivered = flags
        self.held, self.epoch = {}, self.epoch + 1
        for lease in self.book:
            self.book.end(lease, Ended.LOST)

    # -- what is always so --

    @invariant()
    def every_letter_is_somewhere(self) -> None:
        places = [*self.queue, *self.held.values(), *self.parked, *self.acked]
        assert sorted(letter.number for letter in places) == [*range(len(self.letters))]

    @invariant()
    def nothing_is_gone_that_nobody_received(self) -> None:
        """Equal letters included, whatever is killed."""
        assert all(letter.handed for letter in self.acked)

    @invariant()
    def each_lease_holds_one_letter_and_each_held_letter_has_one(self) -> None:
        assert sorted(entry.held.number for entry in self.book) == sorted(self.held)
        assert self.book.held_bytes == len(self.book)

    def teardown(self) -> None:
        """Not done: it comes back to who asks long enough."""
        self.time_goes_on(1000)
        before = {letter.number for letter in self.queue if letter.key not in self.removed_keys}
        seen: set[int] = set()
        while self.queue:
            self.receives("me", 1)
            seen |= {entry.held.number for entry in self.book}
            for lease in self.book:
                self.book.end(lease, Ended.RELEASED)
                self.held.pop(lease.held.number)
        assert before <= seen

    def _has_twin(self, letter: Letter) -> bool:
        return sum(other.key == letter.key for other in self.letters) > 1

    def _returned(self, lease: Lease[Letter], how: Ended) -> None:
        assert how not in REMOVED
        self.book.end(lease, how)
        self._back([self.held.pop(lease.held.number)])

    def _back(self, letters: list[Letter]) -> None:
        for letter in letters:
            letter.redelivered = True
        self.queue = sorted([*self.queue, *letters], key=lambda letter: letter.number)


TestHistories = Histories.TestCase
TestHistories.settings = settings(law, max_examples=100 * THOROUGH, stateful_step_count=40)
