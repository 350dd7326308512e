"""The journal of a router of before is read by what reads it today, with the answers that were true then."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dlx_router.core.signature import HEADER, Signature, Signer, judged
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.reading import lines
from dlx_router.journal.replay import letter_of
from dlx_router.redrive.canary import Flock
from dlx_router.redrive.task import State, newest
from dlx_router.redrive.task_events import letters, tasks
from dlx_router.service.vhost.signing_key import from_file
from dlx_router.spark.backtest.replay import files_of, judge_of, recorded, was_decided
from tests.journal.old_journal import FOLDER, events, old

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(old().key.hex(), encoding="utf-8")
    return from_file(file)


@pytest.fixture(scope="module")
def reader(key: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Of an index that read all of it."""
    file, signer = tmp_path_factory.mktemp("index") / "index.sqlite", Signer(key, old().vhost, old().stream)
    store = Store(open_writer(file, max_bytes=1 << 30))
    store.apply(
        "/",
        [
            Message(headers["x-stream-offset"], body, judged(signer, body, headers[HEADER].encode()), headers["v"])
            for headers, body in old().messages
        ],
    )
    store.close()
    opened = Reader(file)
    yield opened
    opened.close()


def test_the_index_says_where_each_letter_ended(reader: Reader) -> None:
    states = {row["failed_queue"]: row["states"] for row in reader.failed_queues(EVERYTHING)}
    assert {queue: states[queue] for queue in old().states} == old().states
    deaths: Counter[str] = Counter()
    for group in reader.groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=1000, offset=0):
        deaths[group["failed_queue"]] += group["deaths"]
    assert {queue: deaths[queue] for queue in old().deaths} == old().deaths
    stream = reader.streams()["/"]
    assert (stream["events"], stream["unread"], stream["missing"]) == (len(events()), 0, 0)
    assert reader.signatures() == {"/": {Signature.OK: len(events())}}


def test_replay_decides_again_what_was_decided() -> None:
    judge = judge_of(files_of(FOLDER), "dlx-router")
    letter_events = [event for event in events() if event.get("id")]
    assert all(letter_of(event).id == event["id"] for event in letter_events)
    decided = [event for event in letter_events if was_decided(event)]
    assert len(decided) == old_deaths()
    assert [judge.judge(event) for event in decided] == [recorded(event) for event in decided]


def old_deaths() -> int:
    return sum(old().deaths.values())


def test_the_next_leader_finds_the_task_and_its_letters(key: bytes) -> None:
    bodies = [b"\n".join(lines(body, headers["v"])) for headers, body in old().messages]
    (task,) = newest([entry for body in bodies for entry in tasks(body, key)]).values()
    sent = old().states["mail.out"]["redriven"]
    assert (task.state, task.spec.queue, task.counts.sent) == (State.DONE, "DLQ.mail.out", sent)
    flock = Flock(task.id, elsewhere=False, before=0)
    for body in bodies:
        for event in letters(body):
            flock.hear(event)
    assert flock.sent == sent
