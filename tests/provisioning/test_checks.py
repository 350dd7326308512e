"""`policy lint --broker` about what stands in a broker: pure, by snapshots."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.broker.definitions import Queue, core, rescued, rung
from dlx_router.broker.management import Bound, Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.cli import doctor
from dlx_router.config.findings import Severity
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning.broker_lint import Checks
from dlx_router.provisioning.desired_policies import Written
from dlx_router.provisioning.ownership import is_own_rule, own_rule
from dlx_router.provisioning.plan import plan


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
    found = [*doctor.source({"name": "q", "type": "quorum", "arguments": queue.arguments}, version)]
    assert len(found) == bool(codes)
    helps = "no policy raises its argument" if arguments else "by a policy (2147483647)"
    assert all(helps in finding.fix for finding in found)


DECLARED: Final = [
    (Standing("p.inbox", "classic"), "queue 'p.inbox' has x-queue-type 'classic' where the router declares 'quorum'"),
    (Standing("p.inbox", "quorum", {**rescued(Names("p")), "x-max-length": 5}), "queue 'p.inbox' has x-max-length 5"),
]


@pytest.mark.parametrize(("queue", "words"), DECLARED)
def test_a_plan_leads_no_letter_where_somebody_else_declared_a_queue_of_ours(queue: Standing, words: str) -> None:
    planned = plan(PolicySet(()), Snapshot("/", (4, 3), (queue,)), Names("p"), frozenset())
    (note,) = planned.conflicts
    assert words in note.text
    assert "delete it" in note.text
    assert planned.is_refused


LEADING: Final = [
    ("p.return", {"p.return": "direct"}, {"p.return": "other"}, "has alternate-exchange 'other'", False),
    ("p.inbox", {"p.inbox": "fanout"}, {"p.inbox": "other"}, "has alternate-exchange 'other'", True),
    ("p.release", {"p.release": "direct"}, {}, "has type 'direct' where the router declares 'fanout'", False),
]


@pytest.mark.parametrize(("exchange", "kinds", "alternates", "words", "drops"), LEADING)
def test_a_plan_leads_no_letter_where_an_exchange_of_ours_leads_elsewhere(
    exchange: str,
    kinds: dict[str, str],
    alternates: dict[str, str],
    words: str,
    drops: bool,  # noqa: FBT001 - a table
) -> None:
    inbox = Queue("p.inbox", rescued(Names("p")))
    queues = (Standing(inbox.name, "quorum", inbox.arguments),)
    snapshot = Snapshot("/", (4, 3), queues, exchanges=kinds, alternates={**alternates, "graves": "lost"})
    planned = plan(PolicySet(()), snapshot, Names("p"), frozenset())
    (note,) = planned.conflicts
    assert f"exchange '{exchange}' {words}" in note.text
    assert ("drops what dies" in note.text) is drops
    assert planned.is_refused


def test_a_policy_gives_a_dead_letter_exchange_a_way_as_an_argument_does(tmp_path: Path) -> None:
    """The default exchange has none, and an argument holds before a policy."""
    (tmp_path / "p.yaml").write_text(
        "version: 1\npolicies:\n  - {name: a, queue: q, definition: "
        "{dead-letter-exchange: graves, dead-letter-routing-key: k}}\n"
    )
    loaded = load_policies(tmp_path)
    queues = (Standing("q", "classic"), Standing("rest", "classic"))
    kinds = {"": "direct", "graves": "direct", "other": "fanout", "nowhere": "fanout"}
    bare = Snapshot("/", (4, 3), queues, kinds, (Bound("other", "rest", ""),), durable_exchanges=frozenset(kinds))

    def codes(snapshot: Snapshot) -> set[str]:
        return {entry.code for entry in Checks(loaded.policies, (), snapshot, Names(), None).findings()}

    led = replace(bare, policies=(Rule("all", "^graves$", {"alternate-exchange": "other"}, apply_to="exchanges"),))
    assert "DLX203" in codes(bare)
    assert "DLX203" not in codes(led)
    assert "DLX203" in codes(replace(led, alternates={"graves": "nowhere"}))


def test_an_internal_exchange_as_a_target_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "version: 1\nattachments:\n  - {queue: in, mode: relay, forward-to: {exchange: hidden}}\n"
        "policies:\n  - {name: a, queue: q, definition: {dead-letter-exchange: hidden}}\n"
    )
    loaded = load_policies(tmp_path)
    seen = Snapshot("/", (4, 3), (Standing("q", "classic"),), {"": "direct", "hidden": "fanout"})
    for internal, lines in ((frozenset[str](), []), (frozenset({"hidden"}), [3, 5])):
        snapshot = replace(seen, internal_exchanges=internal)
        findings = Checks(loaded.policies, loaded.attachments, snapshot, Names(), None).findings()
        errors = [found for found in findings if found.code == "DLX206" and found.severity is Severity.ERROR]
        assert sorted(found.line for found in errors) == lines


@pytest.mark.parametrize("apply_to", ["queues", "all"])
def test_the_policy_on_our_own_is_known_however_an_apply_of_before_made_it(apply_to: str) -> None:
    now = replace(own_rule(Names("p"), 1_000_000), apply_to=apply_to)
    assert is_own_rule(now, Names("p"))
    planned = plan(PolicySet(()), Snapshot("/", (4, 3), policies=(now,)), Names("p"), frozenset())
    changed = [step.thing for step in planned.steps if step.what == "policy"]
    assert [step.rule.apply_to for step in changed if isinstance(step, Written)] == ["all"][: apply_to == "queues"]
    assert planned.conflicts == ()


def test_a_plan_objects_to_no_queue_that_the_router_declared() -> None:
    names = Names("p")
    ours = [item for item in (*core(names), *rung(names, 1000)) if isinstance(item, Queue)]
    stands = tuple(Standing(queue.name, str(queue.arguments["x-queue-type"]), queue.arguments) for queue in ours)
    planned = plan(PolicySet(()), Snapshot("/", (4, 3), stands), names, frozenset())
    assert planned.conflicts == ()


WIDE: Final = [
    (["  - {name: all, match: '#'}"], ['2 of them ("orders", "q")']),
    (["  - {name: all, pattern: '.*'}"], ["2 of them"]),
    (["  - {name: all, match: '#'}", "  - {name: a, queue: q}"], ['1 of them ("orders")']),
    (["  - {name: all, match: '#'}", "  - {name: a, pattern: '^(q|orders)$'}"], []),
    (["  - {name: all, vhost: other, match: '#'}"], []),
    (["  - {name: a, match: 'orders.#'}"], []),
]  # fmt: skip


@pytest.mark.parametrize(("policies", "texts"), WIDE)
def test_a_policy_for_every_queue_is_warned_of_if_it_alone_selects_some(
    tmp_path: Path, policies: list[str], texts: list[str]
) -> None:
    queues = (Standing("q", "classic"), Standing("orders", "classic"))
    found = [text for code, text in findings_of(tmp_path, "\n".join(policies), *queues) if code == "DLX219"]
    assert len(found) == len(texts)
    assert all(text in message for text, message in zip(texts, found, strict=True))


@pytest.mark.parametrize(
    ("place", "held", "says"),
    [
        ({}, {"DLQ.a": 2}, ""),
        ({}, {"DLQ.a": 1}, "counts 2 letters in queue 'DLQ.a' of vhost '/', which holds 1"),
        ({}, {"DLQ.a": 3}, "which holds 3"),
        ({}, {"DLQ.a": None}, ""),
        ({}, {}, "does not exist"),
        ({"vhost": "other"}, {}, ""),
        ({"exchange": "dlx"}, {}, ""),
    ],
)
def test_doctor_compares_the_index_with_queues(place: dict[str, str], held: dict[str, int | None], says: str) -> None:
    places = [{"vhost": "/", "exchange": "", "routing_key": "DLQ.a", "n": 2} | place]
    rows = [{"name": name, "messages": messages} for name, messages in held.items()]
    found = [finding.found for finding in doctor.index_counts("/", places, rows)]
    assert len(found) == bool(says)
    assert all(says in text for text in found)
