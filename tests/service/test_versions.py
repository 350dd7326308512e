"""Two versions of the router side by side: each reads what the other wrote, and carries what it does not know.

The newer one is a copy of the package that says version 2 in records and events, and writes a member of its own.
"""

import json
import secrets
import shutil
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.bulk import INBOX, bodies, law_holds, pour, record, take_many
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.router import Router

LETTERS: Final = 100
PACKAGE: Final = Path(__file__).parents[2] / "dlx_router"
POLICIES: Final = """
version: 1
policies:
  - {name: thrice, queue: thrice, definition: {max-delivery-attempts: 3, redelivery-delay: 100ms}}
  - {name: patient, queue: patient, definition: {max-delivery-attempts: 2, redelivery-delay: 1h}}
"""
RUNG: Final = "dlx-router.delay.3600000"
RELEASE: Final = "dlx-router.release"
NEWER: Final = (
    ("core/record.py", "VERSION: Final = 1", "VERSION: Final = 2"),
    ("core/remembered.py", '"v", "id", "state"', '"v", "zone", "id", "state"'),
    ("core/record.py", '{due}"first_death_ms":{first_ms}', '{due}"zone":"north","first_death_ms":{first_ms}'),
    ("journal/fields.py", "VERSION: Final = 1", "VERSION: Final = 2"),
    ("journal/events.py", '{{"v":{VERSION},', '{{"v":{VERSION},"zone":"north",'),
)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """What replicas share."""
    file = tmp_path / "key"
    file.write_text(secrets.token_hex(32), encoding="utf-8")
    return file


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder with the next version of the package."""
    shutil.copytree(PACKAGE, tmp_path / "newer" / "dlx_router", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in NEWER:
        file = tmp_path / "newer" / "dlx_router" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, (name, old)
        file.write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path / "newer"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_two_versions_share_an_inbox_and_every_letter(
    start_router: Callable[..., Router],
    amqp: Client,
    newer: Path,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each letter dies three times and waits twice: nearly all pass through both. The older one keeps the index."""
    env = {"PROVENANCE_KEY_FILE": str(key_file), "PREFETCH": "5"}
    older = start_router(POLICIES, INDEX_PATH=str(key_file.with_name("index")), **env)
    eventually(lambda: older.ask("/api/v1/letters")[0] == 200, 30)
    with monkeypatch.context() as inherited:
        inherited.setenv("PYTHONPATH", str(newer))
        inherited.setenv("PYTHONSAFEPATH", "1")
        later = start_router(POLICIES, **env)
    amqp.queue("thrice", "quorum", dead_letter_exchange=INBOX)
    pour(amqp, "thrice", [f"letter-{number}" for number in range(LETTERS)])
    reject_until_dead(amqp, "thrice", LETTERS)
    dead = take_many(amqp, "DLQ.thrice", LETTERS)

    assert bodies(dead) == sorted(f"letter-{number}" for number in range(LETTERS))
    assert {message.deaths[0]["count"] for message in dead} == {3}
    records = [record(message) for message in dead]
    assert {(fields["attempts"], fields["state"]) for fields in records} == {(3, "dead")}
    assert {fields["v"] for fields in records} == {1, 2}
    assert [fields for fields in records if fields["v"] == 1 and fields.get("zone") == "north"], (
        "no letter passed through both"
    )
    settled = [router.metric("settled_total", action="dead_letter") for router in (older, later)]
    assert min(settled) > 0
    assert sum(settled) == LETTERS
    for router in (older, later):
        eventually(lambda router=router: law_holds(router))  # type: ignore[misc]  # a default binds it
    eventually(lambda: indexed(older) == LETTERS, 30)


def reject_until_dead(amqp: Client, queue: str, count: int) -> None:
    """Every delivery of the queue is rejected, until so many letters are dead."""
    channel = amqp.connection.channel()
    deadline = time.monotonic() + 60
    for method, _, _ in channel.consume(queue, inactivity_timeout=0.1):
        if method is not None:
            channel.basic_reject(method.delivery_tag, requeue=False)
        elif amqp.exists(f"DLQ.{queue}") and amqp.depth(f"DLQ.{queue}") == count:
            break
        assert time.monotonic() < deadline, f"not all of {count} letters are dead"
    channel.cancel()
    channel.close()


def indexed(router: Router) -> int:
    """Letters that the index calls dead, each with the whole journey: three decisions."""
    status, text = router.ask("/api/v1/letters?limit=1000")
    assert status == 200, text
    dead = [letter for letter in json.loads(text)["letters"] if letter["state"] == "dead"]
    assert all(letter["attempts"] == 3 for letter in dead)
    return len(dead)


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(("version", "lacks"), [(0, ("first",)), (2, ())])
def test_a_waiting_letter_of_the_neighbouring_version_goes_its_way(
    start_router: Callable[..., Router], amqp: Client, key_file: Path, version: int, lacks: tuple[str, ...]
) -> None:
    """What only that version knows is on the letter when it comes back, and still when it is dead."""
    router = start_router(POLICIES, PROVENANCE_KEY_FILE=str(key_file))
    new = {"zone": "north", "hops": [1, {"deep": None}]}
    release(amqp, waiting(amqp), key_file, v=version, lacks=lacks, **new)
    back = amqp.fail("patient", within=20)
    dead = amqp.take("DLQ.patient", within=20)
    for message in (back, dead):
        assert record(message).items() >= {"v": 1, **new}.items()
    assert (dead.body, record(dead)["attempts"], dead.deaths[0]["count"]) == (b"waits", 2, 2)
    assert record(dead)["id"] == record(back)["id"]
    assert router.metric("settled_total", action="dead_letter") == 1


def waiting(amqp: Client) -> Message:
    """A letter out of its rung, an hour too early."""
    amqp.queue("patient", "quorum", dead_letter_exchange=INBOX)
    amqp.publish("waits", key="patient")
    amqp.fail("patient")
    return amqp.take(RUNG, within=20)


def release(amqp: Client, letter: Message, key_file: Path, *, lacks: tuple[str, ...] = (), **members: Any) -> None:
    """The wait is over, and another version wrote the record."""
    fields = record(letter) | {"due_ms": int(time.time() * 1000)} | members
    fields = {name: value for name, value in fields.items() if name not in {"mac", *lacks}}
    key = blake2b(key_file.read_bytes().strip(), digest_size=32, person=b"dlx-router").digest()
    head = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    mac = blake2b(head, digest_size=16, key=key).hexdigest()
    headers = {**letter.headers, "dlx-router": f'{head.decode()},"mac":"{mac}"}}'}
    amqp.publish(letter.body, key=letter.routing_key, exchange=RELEASE, headers=headers)
