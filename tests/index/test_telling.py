"""What the index says to who tells people: groups that changed, letters in parking, what routers wrote down before."""

from pathlib import Path

from dlx_router.core.signature import Signature
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from tests.core.core_samples import NOW
from tests.journal.journal_samples import told


def test_a_group_is_seen_from_its_last_death_on_and_by_its_vhost(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2, at=50)), Message(1, told(3, queue="mail", at=90))])
    store.apply("shop", [Message(0, told(4, queue="mail", at=10))])
    reader = Reader(file)
    second, first = reader.groups_since("/", 0)
    assert (first.failed_queue, first.first_ms, first.last_ms, first.deaths) == ("mail", NOW + 90, NOW + 90, 1)
    assert (second.failed_queue, second.first_ms, second.last_ms, second.deaths) == ("orders", NOW, NOW + 50, 2)
    assert [group.failed_queue for group in reader.groups_since("/", NOW + 60)] == ["mail"]
    assert [group.first_ms for group in reader.groups_since("shop", 0)] == [NOW + 10]


def test_a_group_says_since_when_it_is_resolved_and_whether_it_is_ignored(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1))])
    reader = Reader(file)
    (group,) = reader.groups_since("/", 0)
    assert (group.resolved_ms, group.ignored) == (0, False)
    for at, (state, more, resolved, ignored) in enumerate(
        [
            ("resolved", {}, NOW + 0, False),
            ("ignored", {}, 0, True),
            ("ignored", {"until_ms": 1}, 0, False),
            ("open", {}, 0, False),
        ]
    ):
        details = {"group": group.id, "state": state, **more}
        change = audit("r", "/", actor="ann", action="group.set", details=details, ts_ms=NOW + at)
        store.apply("/", [Message(at + 1, change)])
        (seen,) = reader.groups_since("/", 0)
        assert (seen.resolved_ms, bool(seen.ignored)) == (resolved, ignored), state


def test_letters_in_parking_are_counted_by_group(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, b"".join(told(number, "parked") for number in range(3)) + told(9))])
    store.apply("shop", [Message(0, told(7, "parked", queue="mail"))])
    reader = Reader(file)
    assert [(queue, n) for (queue, _), n in reader.parked("/")[0].items()] == [("orders", 3)]
    store.apply("/", [Message(1, told(1, "redriven", at=5))])
    assert [*reader.parked("/")[0].values()] == [2]


def test_letters_in_parking_are_counted_since_a_moment_too(store: Store, file: Path) -> None:
    lines = [told(number, "parked", at=number) for number in range(5)]
    store.apply("/", [Message(0, b"".join(lines) + told(8, at=9) + told(9, "parked", queue="mail", at=4))])
    store.apply("shop", [Message(0, told(7, "parked", at=9))])
    counts, later = Reader(file).parked("/", NOW + 3)
    assert {queue: n for (queue, _), n in counts.items()} == {"orders": 5, "mail": 1}
    assert {queue: n for (queue, _), n in later.items()} == {"orders": 2, "mail": 1}
    assert Reader(file).parked("/", NOW + 5) == (counts, {})


def test_what_our_routers_wrote_down_is_told_and_nobody_elses(store: Store, file: Path) -> None:
    def wrote(action: str, at: int) -> bytes:
        return audit("r", "/", actor="router", action=action, details={"to": "a", "at": at}, ts_ms=NOW + at)

    signed = [Message(0, wrote("webhook.told", 2) + wrote("webhook.done", 1) + wrote("group.set", 3), Signature.OK)]
    store.apply("/", signed)
    forged = [Message(n, wrote("webhook.told", 9), how) for n, how in enumerate((Signature.NONE, Signature.BAD), 1)]
    store.apply("/", forged)
    events = Reader(file).audits_of("/", ("webhook.told", "webhook.done"), NOW)
    assert events == [("webhook.done", {"to": "a", "at": 1}), ("webhook.told", {"to": "a", "at": 2})]
    assert Reader(file).audits_of("/", ("webhook.told",), NOW + 3) == []
    assert Reader(file).audits_of("shop", ("webhook.told",), 0) == []
