"""`policy lint --broker` about what stands in a broker: pure, by snapshots."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.broker.definitions import Queue, core, rescued, rung, shard
from dlx_router.cli.doctor import diagnosis
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning.broker_lint import MANY_QUEUES, Checks
from dlx_router.provisioning.plan import plan, unnamed_inboxes


def findings_of(
    folder: Path, policies: str, *queues: Standing, version: tuple[int, ...] = (4, 3)
) -> list[tuple[str, str]]:
    """Codes and messages of what is found."""
    (folder / "p.yaml").write_text(f"version: 1\npolicies:\n{policies}\n")
    loaded = load_policies(folder)
    findings = Checks(loaded.policies, loaded.attachments, Snapshot("/", version, queues), Names(), None).findings()
    return [(finding.code, finding.message) for finding in findings]


def quorum(**arguments: Any) -> Standing:
    return Standing("q", "quorum", {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})


LIMITS = [
    ({}, (4, 3), {"DLX210"}), ({}, (3, 10), set()), ({"delivery_limit": 5}, (3, 10), {"DLX210"}),
    ({"delivery_limit": 2_147_483_647}, (4, 3), set()),  # as the router declares its own, and as doctor advises
    ({"delivery_limit": -1}, (4, 3), set()), ({"delivery_limit": -1}, (3, 10), {"DLX210"}),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "version", "codes"), LIMITS)
def test_only_a_limit_that_letters_reach_is_warned_of_by_lint_and_doctor(
    tmp_path: Path, arguments: dict[str, Any], version: tuple[int, ...], codes: set[str]
) -> None:
    queue = quorum(**arguments)
    assert {code for code, _ in findings_of(tmp_path, "  - {name: a, queue: q}", queue, version=version)} == codes
    finding = diagnosis.source({"name": "q", "type": "quorum", "arguments": queue.arguments}, version)
    assert (finding is not None) == bool(codes)
    assert finding is None or "delivery-limit: 2147483647" in finding.fix


@pytest.mark.parametrize("more", [0, 1])
def test_a_discard_for_more_queues_than_anybody_thought_of_is_told(tmp_path: Path, more: int) -> None:
    queues = [Standing(f"logs.{number}", "classic") for number in range(MANY_QUEUES + more)]
    texts = [
        text
        for code, text in findings_of(tmp_path, "  - {name: a, match: logs.#, definition: {discard: true}}", *queues)
        if code == "DLX117"
    ]
    assert len(texts) == more
    assert not texts or f'{len(queues)} queues ("logs.0", "logs.1", "logs.10" …)' in texts[0]


LED = [
    ({"p.inbox": "a", "p.inbox.1": "b", "p.inbox.2": "c", "p.inbox.3": "a"}, "ok"),
    ({"p.inbox": "a", "p.inbox.1": "a", "p.inbox.2": "b", "p.inbox.3": "a"}, "note"),
    ({"p.inbox": "a", "p.state": "a", "p.inbox.7": "b"}, None),  # one inbox, one that is not named, and another queue
]


@pytest.mark.parametrize(("leaders", "level"), LED)
def test_doctor_says_which_nodes_lead_the_inboxes_and_what_mends_it(leaders: dict[str, str], level: str | None) -> None:
    rows = [{"name": name, "leader": node, "members": ["a", "b", "c"]} for name, node in leaders.items()]
    finding = diagnosis.leaders(rows, Names("p", 4))
    assert (finding and finding.level.value) == level
    if level == "note":
        assert finding is not None
        assert finding.found == "inbox shards are led by a: 3, b: 1, c: 0"
        assert finding.fix == "rabbitmq-queues rebalance quorum --queue-pattern '^p[.]inbox([.][0-9]+)?$'"
    alone = [{**row, "members": ["a"]} for row in rows]
    assert diagnosis.leaders(alone, Names("p", 4)) is None, "there is one node"


OLD = Standing("p.inbox.3", "quorum")
LEFT = [
    ((replace(OLD, messages=2, consumers=1),), (), "a router takes the 2 letters in it"),
    ((replace(OLD, messages=2),), (), "2 letters lie in it, and nobody takes them"),
    ((OLD, Standing("q", "classic", {"x-dead-letter-exchange": "p.inbox.3"})), (), "still come there: q"),
    ((OLD,), (Rule("mine", "^q", {"dead-letter-exchange": "p.inbox.3"}),), "still come there: policy mine"),
    ((OLD, Standing("q", "quorum", pending=1)), (), "may be on their way there"),
    ((OLD,), (), "it is empty: delete the queue and the exchange"),
]


@pytest.mark.parametrize(("queues", "rules", "words"), LEFT)
def test_a_plan_says_of_an_inbox_that_is_not_named_what_is_with_it(
    queues: tuple[Standing, ...], rules: tuple[Rule, ...], words: str
) -> None:
    snapshot = Snapshot("/", (4, 3), queues, policies=rules)
    (note,) = unnamed_inboxes(snapshot, Names("p", 2))
    assert note.text.startswith("queue p.inbox.3 is an inbox that DLX_ROUTER_INBOX_SHARDS=2 does not name")
    assert words in note.text
    assert not note.conflict
    assert [*unnamed_inboxes(snapshot, Names("p", 4))] == []


DECLARED: Final = [
    (
        Standing("p.inbox.1", "classic"),
        "queue 'p.inbox.1' has x-queue-type 'classic' where the router declares 'quorum'",
    ),
    (Standing("p.inbox.3", "classic"), "queue 'p.inbox.3' has x-queue-type 'classic'"),  # not named
    (Standing("p.inbox", "quorum", {**rescued(Names("p")), "x-max-length": 5}), "queue 'p.inbox' has x-max-length 5"),
]


@pytest.mark.parametrize(("queue", "words"), DECLARED)
def test_a_plan_leads_no_letter_where_somebody_else_declared_a_queue_of_ours(queue: Standing, words: str) -> None:
    planned = plan(PolicySet(()), Snapshot("/", (4, 3), (queue,)), Names("p", 2), frozenset())
    (note,) = planned.conflicts
    assert words in note.text
    assert "delete it" in note.text
    assert planned.is_refused


def test_a_plan_objects_to_no_queue_that_the_router_declared() -> None:
    names = Names("p", 2)
    ours = [item for item in (*core(names), *shard(names, "p.inbox.3"), *rung(names, 1000)) if isinstance(item, Queue)]
    stands = tuple(Standing(queue.name, str(queue.arguments["x-queue-type"]), queue.arguments) for queue in ours)
    planned = plan(PolicySet(()), Snapshot("/", (4, 3), stands), names, frozenset())
    assert planned.conflicts == ()
