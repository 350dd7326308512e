"""What the index says to who tells people: groups that changed, letters in parking, what routers wrote down before."""

from pathlib import Path

from dlx_router.core.signature import Signature
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from dlx_router.telemetry.wall_clock import wall_ms
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING, line, told


def test_a_group_is_seen_from_its_last_death_on_and_by_its_vhost(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2, at=50)), Message(1, told(3, queue="mail", at=90))])
    store.apply("shop", [Message(0, told(4, queue="mail", at=10))])
    reader = Reader(file)
    second, first = reader.groups_since("/", 0)
    assert (first.failed_queue, first.first_ms, first.last_ms, first.deaths) == ("mail", NOW + 90, NOW + 90, 1)
    assert (second.failed_queue, second.first_ms, second.last_ms, second.deaths) == ("orders", NOW, NOW + 50, 2)
    assert [group.failed_queue for group in reader.groups_since("/", NOW + 60)] == ["mail"]
    assert [group.first_ms for group in reader.groups_since("shop", 0)] == [NOW + 10]


def test_a_group_that_is_new_to_the_index_is_seen_however_old_its_death_is(store: Store, file: Path) -> None:
    """A replica's journal was away, and its memory of that time comes later than what others told since."""
    store.apply("/", [Message(0, told(1, at=3_600_000))])
    reader = Reader(file)
    (first,) = reader.groups_since("/", 0)
    store.apply("/", [Message(1, told(2, queue="late", at=0))])
    assert [group.failed_queue for group in reader.groups_since("/", NOW + 3_500_000)] == ["orders"]
    since = reader.groups_since("/", NOW + 3_500_000, first.number)
    assert [group.failed_queue for group in since] == ["late", "orders"]


def test_a_death_that_is_yet_to_come_counts_as_one_of_now(store: Store, file: Path) -> None:
    """Else its group has died again since whatever is said of it."""
    died = line(letter(id="f" * 32, failed_queue="orders"), RULING, now_ms=2**52)
    store.apply("/", [Message(0, died), Message(1, told(1))])
    (seen,) = Reader(file).groups_since("/", 0)
    assert (seen.first_ms, seen.deaths) == (NOW, 2)
    assert NOW < seen.last_ms <= wall_ms()
    details = {"group": seen.id, "state": "resolved"}
    store.apply("/", [Message(2, audit("r", "/", actor="a", action="group.set", details=details, ts_ms=wall_ms() + 1))])
    row = Reader(file).group(seen.id, lambda _vhost, _queue: True)
    assert row is not None
    assert row["state"] == "resolved"


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
    assert [(queue, n) for (queue, _), n in reader.parked("/").items()] == [("orders", 3)]
    store.apply("/", [Message(1, told(1, "redriven", at=5))])
    assert [*reader.parked("/").values()] == [2]


def test_what_our_routers_wrote_down_is_told_and_nobody_elses(store: Store, file: Path) -> None:
    def wrote(action: str, at: int) -> bytes:
        return audit("r", "/", actor="router", action=action, details={"to": "a", "at": at}, ts_ms=NOW + at)

    signed = [Message(0, wrote("webhook.told", 2) + wrote("webhook.began", 1) + wrote("group.set", 3), Signature.OK)]
    store.apply("/", signed)
    forged = [Message(n, wrote("webhook.told", 9), how) for n, how in enumerate((Signature.NONE, Signature.BAD), 1)]
    store.apply("/", forged)
    events = Reader(file).audits_of("/", ("webhook.told", "webhook.began"), NOW)
    assert events == [("webhook.began", {"to": "a", "at": 1}), ("webhook.told", {"to": "a", "at": 2})]
    assert Reader(file).audits_of("/", ("webhook.told",), NOW + 3) == []
    assert Reader(file).audits_of("shop", ("webhook.told",), 0) == []
