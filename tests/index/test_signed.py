"""The index tells what a router signed from what somebody else wrote: kept, marked, counted, and never in the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.core.fingerprint import of_event
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from tests.core.core_samples import NOW
from tests.index.conftest import POLICIES
from tests.journal import stream
from tests.journal.journal_samples import told
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.raw import RawClient
from tests.support.router import Router

JOURNAL: Final = "dlx-router.journal"
EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
Start = Callable[..., Router]


def test_events_are_counted_by_signature_and_marked(store: Store, file: Path) -> None:
    for number, signature in enumerate(("ok", "none", "bad", "unknown_key")):
        store.apply("/", [Message(number, told(at=number), signature)])
    assert Reader(file).signatures() == {"/": {"ok": 1, "none": 1, "bad": 1, "unknown_key": 1}}
    assert Reader(file).signatures(["other"]) == {}
    (row,) = Reader(file).letter(f"{1:032x}", EVERYTHING, None)
    assert [step["signature"] for step in row["journey"]] == ["ok", "none"], "the others have the id of that one"


def test_a_forged_event_does_not_hide_the_true_one_that_has_its_id(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(kind="discarded"), "none")])
    store.apply("/", [Message(1, told(), "ok"), Message(2, told(), "ok")])
    (row,) = Reader(file).letter(f"{1:032x}", EVERYTHING, None)
    assert (row["state"], [step["signature"] for step in row["journey"]]) == ("dead", ["none", "ok"])


def test_a_true_message_that_is_written_again_counts_once(store: Store, file: Path) -> None:
    for number in range(3):
        store.apply("/", [Message(number, told(), "ok")])
    (row,) = Reader(file).letter(f"{1:032x}", EVERYTHING, None)
    assert len(row["journey"]) == 1


def test_once_a_journal_is_signed_an_order_that_is_not_changes_no_group(store: Store, file: Path) -> None:
    def order(number: int, state: str) -> bytes:
        return audit(
            "r", "/", actor="eve", action="group.set", details={"group": group, "state": state}, ts_ms=NOW + number
        )

    def state() -> tuple[str, str | None]:
        (row,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
        return row["state"], row["actor"]

    store.apply("/", [Message(0, told(), "none")])
    (row,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    group = row["id"]
    store.apply("/", [Message(1, order(1, "ignored"), "none")])
    assert state() == ("ignored", "eve"), "a journal of a router that did not sign yet"
    store.apply("/", [Message(2, order(2, "open"), "ok")])
    for number, signature in enumerate(("none", "bad", "unknown_key"), 3):
        store.apply("/", [Message(number, order(number, "ignored"), signature)])
    assert state()[0] == "open"
    assert [entry["signature"] for entry in Reader(file).audits(["/"], limit=2)] == ["unknown_key", "bad"]


def order_of(vhost: str) -> bytes:
    group = of_event({**json.loads(told()), "vhost": vhost}).id
    details = {"group": group, "state": "ignored", "note": "mine"}
    return audit("r", vhost, actor="eve", action="group.set", details=details, ts_ms=NOW)


def state_of(file: Path, vhost: str) -> str:
    (row,) = Reader(file).groups(EVERYTHING, vhost=vhost, failed_queue=None, state=None, limit=10, offset=0)
    assert row["note"] == ("mine" if row["state"] == "ignored" else None)
    return str(row["state"])


def test_an_order_behind_the_first_signed_event_has_to_be_signed_in_whichever_transaction(
    store: Store, file: Path
) -> None:
    """A journal that is read again comes in larger pieces than it came at first."""
    store.apply("/", [Message(0, told(), "ok"), Message(1, order_of("/"), "none")])
    assert state_of(file, "/") == "open"
    messages = [Message(0, told(2), "none"), Message(1, order_of("other"), "none"), Message(2, told(3), "ok")]
    store.apply("other", messages)
    assert state_of(file, "other") == "ignored", "the first signed event came later"


def test_an_order_in_the_journal_of_one_vhost_changes_no_group_of_another(store: Store, file: Path) -> None:
    """The other may have no signed event yet, and other people may publish there."""
    store.apply("/", [Message(0, told(), "ok")])
    store.apply("other", [Message(0, told(), "none"), Message(1, order_of("/"), "none")])
    assert (state_of(file, "/"), state_of(file, "other")) == ("open", "open")


@pytest.mark.usefixtures("newest")
def test_what_somebody_writes_into_the_journal_is_told(
    start_router: Start, amqp: Client, tmp_path: Path, vhost: Any
) -> None:
    """Metric, API, log, and what people see; properties that no client library can read do not stop the index."""
    amqp.queue("orders", dead_letter_exchange="dlx-router.inbox")
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.sqlite"))
    amqp.publish("a", key="orders")
    amqp.fail("orders")
    eventually(lambda: router.metric("index_events_total", signature="ok") >= 1)
    (event,) = [event for event in stream.events(vhost.amqp_url) if event["kind"] == "dead_lettered"]
    forged = json.dumps({**event, "event_id": f"{event['id']}-forged", "kind": "discarded"})
    amqp.publish(forged, key=JOURNAL, content_type="application/x-ndjson", headers={"v": 1})
    amqp.publish(forged, key=JOURNAL, timestamp=2**63, headers={"v": 1, "dlx-router-mac": "x" * 40})
    with RawClient(vhost.amqp_url) as raw:
        raw.publish(b"", b"\x00\x80\x02\xff\xfe", key=JOURNAL)  # a message id that is no text
    amqp.publish("more", key="orders")
    amqp.fail("orders")
    eventually(lambda: router.metric("index_events_total", signature="none") == 1)
    eventually(lambda: router.metric("index_events_total", signature="unknown_key") == 1)
    eventually(lambda: router.metric("index_events_total", signature="ok") >= 2)
    assert "journal.unverified" in router.output
    signatures = json.loads(router.ask("/api/v1/queues")[1])["signatures"][vhost.name]
    assert (signatures["none"], signatures["unknown_key"]) == (1, 1)
    status = json.loads(router.ask("/api/v1/status")[1])["index"]["vhosts"][vhost.name]
    assert status["signatures"]["none"] == 1
    (row,) = json.loads(router.ask(f"/api/v1/letters/{event['id']}")[1])["letters"]
    assert [step["signature"] for step in row["journey"]].count("ok") == 1
