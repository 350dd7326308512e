"""The index through the API: what it knows, and that nothing that happens to it costs a letter."""

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dlx_router.index.reader import Reader
from tests.index.conftest import POLICIES, Desk, as_json
from tests.journal import stream
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost


@pytest.mark.usefixtures("newest")
def test_a_letter_is_found_with_its_journey_and_body(desk: Desk) -> None:
    queue = desk.work("shown")
    desk.kill(queue, as_json(order=4711, to="Zürich"), content_type="application/json", message_id="msg-4711")
    (row,) = desk.letters(1, queue=queue)
    assert (row["state"], row["reason"], row["cause"]) == ("dead", "rejected", "attempts_spent")
    assert row["target"] == {"exchange": "", "routing_key": "DLQ.shown"}
    status, answer = desk.get(f"/letters/{row['id']}")
    assert status == 200
    (whole,) = answer["letters"]
    assert whole["body"]["form"] == "json"
    assert whole["body"]["content"] == {"order": 4711, "to": "Zürich"}
    assert [step["kind"] for step in whole["journey"]] == ["dead_lettered"]
    assert whole["event"]["deaths"][0]["queue"] == queue
    _, answer = desk.get(f"/letters/{row['id']}", form="hex")
    assert bytes.fromhex(answer["letters"][0]["body"]["content"]) == as_json(order=4711, to="Zürich").encode()


@pytest.mark.parametrize(
    ("words", "count"),
    [("msg-77", 1), ("seventy", 1), ("seventy eight", 0), ('"seventy seven"', 1), ("seven*", 1), ("SEVENTY", 1)],
)
@pytest.mark.usefixtures("newest")
def test_words_find_letters(desk: Desk, words: str, count: int) -> None:
    if not desk.amqp.exists("searched"):
        desk.kill(desk.work("searched"), "seventy seven", message_id="msg-77")
        desk.kill("searched", "eighty", message_id="msg-80")
    desk.letters(2, queue="searched")
    assert len(desk.letters(count, queue="searched", q=words)) == count


@pytest.mark.usefixtures("newest")
def test_pages_are_whole_and_newest_first(desk: Desk) -> None:
    queue = desk.work("paged")
    desk.kill(queue, *(f"{number}" for number in range(7)))
    every = [row["id"] for row in desk.letters(7, queue=queue)]
    paged: list[str] = []
    cursor: int | None = None
    while True:
        _, page = desk.get("/letters", queue=queue, limit=3, **({} if cursor is None else {"cursor": cursor}))
        paged += [row["id"] for row in page["letters"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert paged == every


@pytest.mark.usefixtures("newest")
def test_a_group_is_ignored_resolved_and_opens_when_a_letter_returns(desk: Desk) -> None:
    queue = desk.work("grouped")
    desk.kill(queue, "a", "b")
    desk.letters(2, queue=queue)
    (group,) = desk.groups(queue)
    assert (group["state"], group["deaths"]) == ("open", 2)
    path = f"/groups/{group['id']}"
    status, answer = desk.ask("PATCH", path, json={"state": "ignored", "until_ms": 2**42, "note": "known"})
    assert (status, answer["state"], answer["until_ms"], answer["note"], answer["actor"]) == (
        200, "ignored", 2**42, "known", "local",
    )  # fmt: skip
    status, answer = desk.ask("PATCH", path, json={"state": "resolved"})
    assert (status, answer["state"], answer["note"]) == (200, "resolved", "known")
    desk.kill(queue, "c")
    eventually(lambda: desk.get(path)[1]["returned"], 20)
    assert desk.get(path)[1]["state"] == "open"
    _, answer = desk.get("/audits")
    assert [
        audit["details"]["state"] for audit in answer["audits"] if audit["details"].get("group") == group["id"]
    ] == [
        "resolved",
        "ignored",
    ]


@pytest.mark.usefixtures("newest")
def test_ids_states_and_offsets_survive_a_restart_and_a_damaged_file(desk: Desk) -> None:
    queue = desk.work("kept")
    desk.kill(queue, "a", "b", "c")
    before = desk.letters(3, queue=queue)
    (group,) = desk.groups(queue)
    desk.ask("PATCH", f"/groups/{group['id']}", json={"state": "ignored"})
    assert desk.router.stop() == 0
    desk.router.start(within=40)
    assert [row["id"] for row in desk.letters(3, queue=queue)] == [row["id"] for row in before]
    assert [(row["id"], row["state"]) for row in desk.groups(queue)] == [(group["id"], "ignored")]
    assert desk.state()["rebuilds"] == 0

    for file in (desk.index, Path(f"{desk.index}-wal")):  # what is in the log only would hide the damage
        if file.exists():
            file.write_bytes(b"this is no database" * (file.stat().st_size // 19 + 1000))
    desk.kill(queue, "d")  # routing goes on
    assert desk.amqp.take("DLQ.kept", within=20).body == b"a"
    eventually(lambda: desk.get("/letters")[0] != 200 or desk.state()["rebuilds"] > 0, 20)

    def rebuilt() -> bool:
        status, page = desk.get("/letters", queue=queue)
        assert status == 200, page
        assert desk.state()["rebuilds"] > 0
        return len(page["letters"]) == 4

    eventually(rebuilt, 30, every=0.2)
    assert [(row["id"], row["state"]) for row in desk.groups(queue)] == [(group["id"], "ignored")]


@pytest.mark.usefixtures("newest")
def test_a_file_of_an_older_layout_is_made_anew(desk: Desk) -> None:
    """From the journal's first event on; what only the old file said is not in the new one."""
    queue = desk.work("layout")
    desk.kill(queue, "a", "b")
    before = desk.letters(2, queue=queue)
    assert desk.router.stop() == 0
    with sqlite3.connect(desk.index) as old:
        old.execute("UPDATE letters SET state = 'parked'")
        old.execute("PRAGMA user_version = 1")
    old.close()
    desk.router.start(within=40)

    def renewed() -> bool:
        return desk.state()["rebuilds"] == 1 and desk.get("/letters", queue=queue)[0] == 200

    eventually(renewed, 30, every=0.2)
    after = desk.letters(2, queue=queue, state="dead")
    assert [row["id"] for row in after] == [row["id"] for row in before]


@pytest.mark.usefixtures("newest")
def test_the_process_of_the_index_may_be_killed(desk: Desk) -> None:
    queue = desk.work("killed")
    desk.kill(queue, "a")
    desk.letters(1, queue=queue)
    (worker,) = [
        process for process in psutil.Process(desk.router.pid).children() if "index" in " ".join(process.cmdline())
    ]
    worker.send_signal(signal.SIGKILL)
    desk.kill(queue, "b", "c")
    desk.letters(3, queue=queue, within=30)
    assert desk.router.ask("/readyz")[0] == 200


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_an_emptied_queue_is_noticed(desk: Desk) -> None:
    queue = desk.work("emptied")
    desk.kill(queue, "a", "b")
    desk.letters(2, queue=queue, state="dead")

    def lying() -> dict[str, object]:
        places = desk.get("/queues")[1]["lying"]
        return next((place for place in places if place["queue"] == "DLQ.emptied"), {})

    eventually(lambda: lying().get("depth") == 2, 30, every=0.3)
    desk.amqp.channel.queue_purge("DLQ.emptied")
    desk.letters(2, within=50, queue=queue, state="gone")
    assert lying() == {}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_dead_letter_queue_that_was_deleted_is_noticed(desk: Desk) -> None:
    queue = desk.work("deleted")
    desk.kill(queue, "a", "b")
    desk.letters(2, queue=queue, state="dead")
    desk.amqp.channel.queue_delete("DLQ.deleted")
    desk.letters(2, within=50, queue=queue, state="gone")
    assert "DLQ.deleted" not in {place["queue"] for place in desk.get("/queues")[1]["lying"]}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_stream_that_was_made_anew_is_read_from_its_start(desk: Desk) -> None:
    queue = desk.work("streamed")
    desk.kill(queue, "a")
    desk.letters(1, queue=queue)
    assert desk.router.stop() == 0
    desk.amqp.channel.queue_delete("dlx-router.journal")
    desk.router.start(within=40)
    desk.kill(queue, "other")
    (row,) = desk.letters(1, queue=queue, q="other", within=50)
    assert [other["id"] for other in desk.letters(1, queue=queue)] == [row["id"]]  # the old stream's are forgotten


def test_what_lay_in_a_queue_before_is_imported_without_being_touched(desk: Desk) -> None:
    """Classic queues count nothing; the router's own letters keep their ids and are not told twice."""
    name = desk.vhost.name
    queue = desk.amqp.queue("old.work", "classic", dead_letter_exchange="", dead_letter_routing_key="old.dlq")
    desk.amqp.queue("old.dlq", "classic")
    desk.kill(queue, '{"old": 1}', '{"old": 2}', content_type="application/json")
    eventually(lambda: desk.amqp.depth("old.dlq") == 2)
    for _ in range(2):
        status, answer = desk.ask("POST", "/queues/import", params={"vhost": name}, json={"queue": "old.dlq"})
        assert (status, answer) == (200, {"read": 2, "unreadable": 0})
    letters = desk.letters(2, queue=queue)
    assert {(row["state"], row["reason"], row["target"]["routing_key"]) for row in letters} == {
        ("dead", "rejected", "old.dlq")
    }
    body = desk.get(f"/letters/{letters[0]['id']}")[1]["letters"][0]["body"]
    assert body["content"] == {"old": 2}
    assert [desk.amqp.take("old.dlq").body for _ in range(2)] == [b'{"old": 1}', b'{"old": 2}']

    assert desk.ask("POST", "/queues/import", params={"vhost": name}, json={"queue": "nowhere"})[0] == 404
    status, answer = desk.ask("POST", "/queues/import", params={"vhost": name}, json={"queue": "dlx-router.journal"})
    assert (status, "stream" in answer["error"]) == (409, True)


def test_an_import_counts_no_delivery_that_could_kill(desk: Desk) -> None:
    """From 4.3 a nack is not counted; before, quorum queues are refused with the way out."""
    desk.amqp.queue("old.quorum", "quorum")
    desk.amqp.publish("q", key="old.quorum")
    params = {"vhost": desk.vhost.name}
    status, answer = desk.ask("POST", "/queues/import", params=params, json={"queue": "old.quorum"})
    message = desk.amqp.take("old.quorum")
    assert message.headers.get("x-delivery-count", 0) == 0
    if status == 409:
        assert "attachments" in answer["error"]
    else:
        assert (status, answer["read"]) == (200, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_what_was_only_observed_is_no_letter(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    """A router that observes journals what it would have done; the index of one that routes later knows better."""
    amqp.exchange("dlx", "topic")
    amqp.queue("work", dead_letter_exchange="dlx")
    observer = start_router(POLICIES, "--observe")
    amqp.channel.exchange_bind("dlx-router.observe", "dlx", "#")
    amqp.publish("observed", key="work")
    amqp.fail("work")
    eventually(lambda: [event for event in stream.events(vhost.amqp_url) if event.get("observed")], 20)
    observer.stop()
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.sqlite"))
    desk = Desk(vhost, router, amqp, tmp_path / "index.sqlite")
    desk.kill(desk.work("routed"), "moved")
    (row,) = desk.letters(1)
    assert (row["failed_queue"], [group["id"] for group in desk.groups("work")]) == ("routed", [])
    wanted = (len(stream.events(vhost.amqp_url)), 0)  # what the routers wrote beside the letters may come after them

    def read() -> tuple[int, int]:
        counts = Reader(desk.index).streams()[vhost.name]
        return counts["events"], counts["unread"]

    eventually(lambda: read() == wanted, 20)
