"""Inbox shards where something is odd: another number in each replica, rights that lack, queues of others."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from dlx_router.cli.drain import flowing
from dlx_router.config.findings import OWN_SUBJECT
from dlx_router.config.policy_files.attachments import doubts_of
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.config.rights.permissions import Setup, needed
from dlx_router.core.inbox_shards import MOST_SHARDS, shard_of
from dlx_router.core.names import Names
from tests.provisioning.test_inbox_shards import INBOXES, QUEUES, applied, plan, ready_series, shared
from tests.provisioning.test_provision import Commands
from tests.security.conftest import Admit, admit, allow, rights_of, url_for
from tests.support.bulk import DEAD, PARKING, law_holds, pour, record, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

__all__ = ["admit", "shared"]

Start = Callable[..., Router]
ATTEMPTS: Final = """version: 1
policies:
  - name: work
    match: "work.#"
    definition: {max-delivery-attempts: %d, redelivery-delay: 100ms, dead-letter-exchange: dead}
"""
POLICIES: Final = ATTEMPTS % 1
EACH: Final = 2  # letters of a queue
FROM_WORK: Final = {"x-death": [{**DEAD["x-death"][0], "queue": "work.1"}]}


@pytest.fixture
def commands(vhost: Vhost, amqp: Client, tmp_path: Path) -> Commands:
    """The commands, and a queue for all that died for good."""
    amqp.bind(amqp.queue("dead"), amqp.exchange("dead", "topic"), "#")
    made = Commands(vhost, tmp_path)
    made.write(POLICIES)
    return made


@pytest.mark.slow
def test_replicas_of_different_numbers_count_each_death_once_and_give_back_to_its_queue(
    commands: Commands, amqp: Client, start_router: Start, shared: dict[str, str]
) -> None:
    """As long as the change takes: one, two and four inboxes are named at a time, and four are filled."""
    commands.write(ATTEMPTS % 3)
    routers = [start_router(ATTEMPTS % 3, INBOX_SHARDS=number, **shared) for number in ("1", "4", "2")]
    applied(commands, 4)
    for queue in QUEUES:
        amqp.queue(queue)
        eventually(lambda: commands.effective(queue), 20)  # noqa: B023 - asked at once
        pour(amqp, queue, [f"{queue} {number}" for number in range(EACH)])
    eventually(lambda: rejected(amqp) or amqp.depth("dead") == EACH * len(QUEUES), 60)
    messages = take_many(amqp, "dead", EACH * len(QUEUES))
    assert Counter(message.body.decode().partition(" ")[0] for message in messages) == dict.fromkeys(QUEUES, EACH)
    assert {len({message.body for message in messages}), len(messages)} == {EACH * len(QUEUES)}, "each once"
    for message in messages:
        header, queue = record(message), message.body.decode().partition(" ")[0]
        assert (header["attempts"], header["failed_queue"]) == (3, queue)
        assert [(death["queue"], death["count"]) for death in message.deaths] == [(queue, 3)]
    for inbox in INBOXES:
        died = 3 * EACH * sum(INBOXES[shard_of(queue, 4)] == inbox for queue in QUEUES)
        assert sum(router.metric("deliveries_total", source=inbox) for router in routers) == died
    for router in routers:
        eventually(lambda: law_holds(router), 10)  # noqa: B023 - asked at once
    assert consistently(lambda: amqp.depth("dead") + amqp.depth(PARKING) == 0)


@pytest.mark.slow  # it is asked again after 10 s
def test_an_old_inbox_that_may_not_be_read_is_named_and_taken_once_it_may(
    commands: Commands, vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    """Somebody set the rights of one inbox again before the others were empty."""
    start_router(POLICIES, INBOX_SHARDS="4").stop()
    pour(amqp, INBOXES[3], ["left behind"], FROM_WORK)
    user = admit(*rights_of(needed(load_policies(commands.folder).policies, (), Setup(Names(), journal=True), "/")))
    router = start_router(POLICIES, INBOX_SHARDS="1", AMQP_URL=url_for(vhost, user))
    eventually(lambda: is_shown(router, f"{INBOXES[3]} is not taken: 403", "dlx-router permissions"), 20)
    assert is_shown(router, "stays in it")
    assert amqp.depth(INBOXES[3]) == 1
    eventually(lambda: is_noted(commands, 1, f"{INBOXES[3]} is", "nobody takes"), 20, every=1)
    rights = commands.run("doctor", INBOX_SHARDS="4", AMQP_URL=url_for(vhost, user)).stdout
    assert f"read {INBOXES[1]}" in rights
    more = needed(load_policies(commands.folder).policies, (), Setup(Names(shards=2), journal=True), "/")
    allow(vhost, user, *rights_of(more))
    assert take_many(amqp, "dead", 1, within=30)[0].body == b"left behind"
    eventually(lambda: "is not taken" not in router.ask("/readyz")[1], 20)


def rejected(amqp: Client) -> bool:
    """Whatever comes back fails again; False, so that it is asked again."""
    for queue in QUEUES:
        while (message := amqp.get(queue)) is not None:
            message.reject()
    return False


def is_shown(router: Router, *words: str) -> bool:
    text = router.ask("/readyz")[1]
    assert [word for word in words if word not in text] == [], text
    return True


def is_noted(commands: Commands, shards: int, *words: str) -> bool:
    texts = [note["text"] for note in plan(commands, shards)["notes"]]
    assert any(all(word in text for word in words) for text in texts), texts
    return True


@pytest.mark.slow
def test_more_inboxes_than_queues_are_all_attended_and_shown(
    commands: Commands, amqp: Client, start_router: Start
) -> None:
    inboxes = Names(shards=MOST_SHARDS).inboxes
    router = start_router(POLICIES, INBOX_SHARDS=str(MOST_SHARDS))
    shown = {dict(labels).get("source") for (name, labels) in router.metrics() if name == "dlx_router_deliveries_total"}
    assert shown >= {*inboxes}, "each begins at zero"
    applied(commands, MOST_SHARDS)
    amqp.queue("work.1", message_ttl=0)
    wanted = inboxes[shard_of("work.1", MOST_SHARDS)]
    eventually(lambda: (commands.effective("work.1") or {}).get("dead-letter-exchange") == wanted, 20)
    pour(amqp, "work.1", ["one"])
    assert take_many(amqp, "dead", 1)[0].body == b"one"
    assert router.metric("deliveries_total", source=wanted) == 1
    eventually(lambda: ready_series(router) >= {*inboxes}, 10)
    assert plan(commands, MOST_SHARDS)["steps"] == []


@pytest.fixture
def other(vhost: Vhost) -> Iterator[Vhost]:
    """A second vhost of the broker."""
    made = Vhost.make(vhost.broker, f"{vhost.name}-other")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["4", "2"], ids=["named", "not named"])
def test_an_inbox_of_another_type_is_named_and_stops_its_vhost_alone(
    number: str, commands: Commands, vhost: Vhost, other: Vhost, amqp: Client, start_router: Start
) -> None:
    """Nothing is lost: letters wait until somebody takes it away, and apply leads none there."""
    amqp.queue(INBOXES[3])
    router = start_router(POLICIES, wait=False, INBOX_SHARDS=number, VHOSTS=f"{vhost.name},{other.name}")
    eventually(lambda: is_shown(router, f"queue '{INBOXES[3]}' has x-queue-type 'classic'", "delete it"), 20)
    with Client(other.amqp_url) as there:
        there.bind(there.queue("dead"), there.exchange("dead", "topic"), "#")
        eventually(lambda: there.exists(INBOXES[1]), 20)
        pour(there, INBOXES[1], ["of the other"], FROM_WORK)
        assert take_many(there, "dead", 1, within=30)[0].body == b"of the other"
    eventually(lambda: amqp.exists(INBOXES[1]), 20)
    pour(amqp, INBOXES[1], ["waits"], FROM_WORK)
    refused = commands.run("apply", INBOX_SHARDS=number)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert f"{INBOXES[3]}" in refused.stdout
    assert commands.policies() == {}
    assert f"queue '{INBOXES[3]}' has x-queue-type" in commands.run("doctor", INBOX_SHARDS=number).stdout
    assert consistently(lambda: amqp.depth(INBOXES[1]) == 1)
    amqp.channel.queue_delete(INBOXES[3])
    router.await_ready(within=30)
    assert take_many(amqp, "dead", 1, within=20)[0].body == b"waits"


@pytest.mark.parametrize(("queue", "codes"), [(INBOXES[3], []), ("dlx-router.inbox.16", [OWN_SUBJECT])])
def test_lint_takes_attachments_of_all_inboxes_and_doubts_those_of_other_own_queues(
    queue: str, codes: list[str], tmp_path: Path
) -> None:
    text = f"version: 1\nattachments: [{{queue: {queue}, dead-letter-exchanges: theirs}}]\npolicies: []\n"
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    loaded = load_policies(tmp_path)
    assert [finding.code for finding in doubts_of(loaded.attachments, loaded.policies, Names())] == codes


def test_destroy_waits_for_inboxes_that_are_not_named_too() -> None:
    assert {*INBOXES} <= {*flowing(Names())}
    assert json.dumps(flowing(Names())) == json.dumps([*dict.fromkeys(flowing(Names(shards=4)))]), "whatever is named"
