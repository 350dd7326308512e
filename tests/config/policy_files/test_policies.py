"""What a folder of policies means: values, precedence, revision; the shipped policies are without findings."""

from pathlib import Path
from typing import Any

import pytest

from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.core.policy import Effective, Selector, SelectorKind
from dlx_router.core.template import Template

SHIPPED = Path(__file__).parents[3] / "policies"


def loaded(folder: Path, *files: str) -> LoadedPolicies:
    """The policies of the texts, each a file of its own, `version: 1` put before each."""
    for number, text in enumerate(files):
        (folder / f"{number}.yaml").write_text(f"version: 1\n{text}", encoding="utf-8")
    return load_policies(folder)


def effective(policies: LoadedPolicies, queue: str, reason: str = "rejected", vhost: str = "/") -> Effective:
    policy = policies.policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=None)
    assert policy is not None
    return policy


EVERY_KEY: list[tuple[str, str, Any]] = [
    ("dead-letter-exchange: dlx", "dead_letter_exchange", "dlx"),
    ("max-delivery-attempts: -1", "max_attempts", -1),
    ("max-delivery-attempts: 1", "max_attempts", 1),
    ("retry-on: [expired, maxlen]", "retry_on", frozenset({"expired", "maxlen"})),
    ("retry-on: []", "retry_on", frozenset()),
    ("redelivery-delay: 250", "delay_ms", 250),
    ("redelivery-delay: 250ms", "delay_ms", 250),
    ("redelivery-delay: 1.5s", "delay_ms", 1500),
    ("redelivery-delay: '10m'", "delay_ms", 600_000),
    ("redelivery-delay: 7d", "delay_ms", 604_800_000),
    ("{redelivery-delay: 5s}", "cap_ms", 50_000),
    ("{redelivery-delay: 5s, max-redelivery-delay: 1h}", "cap_ms", 3_600_000),
    ("{redelivery-delay: 1, redelivery-delay-multiplier: 2}", "multiplier", 2.0),
    ("{redelivery-delay: 1, redelivery-collision-avoidance-factor: .15}", "jitter", 0.15),
    ("{}", "auto_create", True),
    ("dead-letter-exchange: dlx", "auto_create", False),
    ("{dead-letter-exchange: dlx, auto-create-dead-letter-resources: true}", "auto_create", True),
    ("dead-letter-queue-prefix: dead-", "dlq_prefix", "dead-"),
    ("{dead-letter-queue-prefix: '', dead-letter-queue-suffix: .DLQ}", "dlq_suffix", ".DLQ"),
    ("dead-letter-queue-type: classic", "dlq_type", "classic"),
    ("dead-letter-headers: [artemis, emq]", "aliases", ("artemis", "emq")),
    ("max-redrives: -1", "max_redrives", -1),
    ("discard: true", "discard", True),
    ("on: {rejected: {max-redrives: 7}}", "max_redrives", 7),
    ("on: {expired: {max-redrives: 7}}", "max_redrives", 3),
    ("{max-redrives: 5, on: {rejected: {max-redrives: 7}}}", "max_redrives", 7),
]


@pytest.mark.parametrize(("definition", "name", "value"), EVERY_KEY)
def test_every_key_is_in_force_as_written(definition: str, name: str, value: object, tmp_path: Path) -> None:
    policies = loaded(
        tmp_path,
        f"policies: [{{name: a, match: '#', definition: {definition.strip()}}}]"
        if definition.startswith("{")
        else f"policies:\n- name: a\n  match: '#'\n  definition:\n    {definition}",
    )
    assert getattr(effective(policies, "work"), name) == value


def test_templates_rewrites_and_allowed_queues_are_parsed_once(tmp_path: Path) -> None:
    policies = loaded(
        tmp_path,
        """
policies:
- name: a
  match: "#"
  definition:
    dead-letter-exchange: ""
    dead-letter-routing-key: "{header:to}"
    allow-queues: [failed.#]
- name: b
  queue: rewritten
  inherit: false
  definition:
    dead-letter-exchange: dlx
    dead-letter-routing-key-rewrite:
    - {match: "^orders\\\\.(.*)$", replace: 'dead.\\1\\\\'}
    - {match: "x", replace: "<\\\\0>"}
""",
    )
    template = effective(policies, "work").routing_key
    assert isinstance(template, Template)
    assert template.parts == (("header", "to"),)
    allowed = effective(policies, "work").settings["allow-queues"].value
    assert allowed == (Selector(SelectorKind.MATCH, "failed.#"),)
    first, second = effective(policies, "rewritten").rewrites
    assert (first.substitute("orders.new"), first.substitute("other")) == ("dead.new\\", None)
    assert second.substitute("axbx\udcff") == "a<x>bx\udcff"


def test_on_is_a_word_and_not_a_boolean(tmp_path: Path) -> None:
    policies = loaded(tmp_path, "policies: [{name: off, queue: on, definition: {on: {expired: {discard: true}}}}]")
    assert effective(policies, "on", "expired").discard
    assert not effective(policies, "on").discard


def test_a_global_limit_of_three_attempts_and_none_for_the_hot_queue(tmp_path: Path) -> None:
    policies = loaded(
        tmp_path,
        """
policies:
- {name: all, match: "#", definition: {max-delivery-attempts: 3, dead-letter-exchange: dead}}
- {name: hot, queue: hot, definition: {max-delivery-attempts: -1}}
""",
    )
    hot, other = effective(policies, "hot"), effective(policies, "cold")
    assert (hot.max_attempts, hot.dead_letter_exchange, hot.names) == (-1, "dead", ("hot", "all"))
    assert (other.max_attempts, other.dead_letter_exchange, other.names) == (3, "dead", ("all",))


PRECEDENCE = """
policies:
- {name: any, match: "#", definition: {max-redrives: 1}}
- {name: regex, pattern: "^a[.]", definition: {max-redrives: 2}}
- {name: hash, match: "a.#", definition: {max-redrives: 3}}
- {name: star, match: "a.*", definition: {max-redrives: 4}}
- {name: words, match: "a.b", definition: {max-redrives: 5}}
- {name: exact, queue: "a.b", definition: {max-redrives: 6}}
- {name: elsewhere, queue: "a.b", vhost: other, priority: 1, definition: {max-redrives: 7}}
- {name: urgent, match: "#.urgent", priority: 1, definition: {max-redrives: 8}}
- {name: alone, queue: "a.c.alone", inherit: false, priority: 2, definition: {discard: true}}
"""


@pytest.mark.parametrize(
    ("queue", "vhost", "names", "max_redrives"),
    [
        ("a.b", "/", ("exact", "words", "star", "hash", "any", "regex"), 6),
        ("a.b", "other", ("elsewhere", "exact", "words", "star", "hash", "any", "regex"), 7),
        ("a.x", "/", ("star", "hash", "any", "regex"), 4),
        ("a.x.y", "/", ("hash", "any", "regex"), 3),
        ("a", "/", ("hash", "any"), 3),
        ("b", "/", ("any",), 1),
        ("a.urgent", "/", ("urgent", "star", "hash", "any", "regex"), 8),
        ("a.c.alone", "/", ("alone",), 3),
    ],
)
def test_the_more_exact_policy_wins_key_by_key(
    queue: str, vhost: str, names: tuple[str, ...], max_redrives: int, tmp_path: Path
) -> None:
    policy = effective(loaded(tmp_path, PRECEDENCE), queue, vhost=vhost)
    assert (policy.names, policy.max_redrives) == (names, max_redrives)


def test_overlays_hold_the_same_order_and_beat_every_base_key(tmp_path: Path) -> None:
    policies = loaded(
        tmp_path,
        """
policies:
- {name: low, match: "#", definition: {on: {application: {max-redrives: 2}, "application:x": {max-redrives: 3}}}}
- {name: high, queue: a, definition: {max-redrives: 9, on: {application: {max-redrives: 4}}}}
""",
    )
    limits = [effective(policies, "a", reason).max_redrives for reason in ("rejected", "application", "application:x")]
    assert limits == [9, 4, 3]


def test_labels_are_merged_and_the_sources_are_file_and_line(tmp_path: Path) -> None:
    policies = loaded(
        tmp_path,
        "policies: [{name: all, match: '#', labels: {team: ops, tier: '1'}}]",
        "policies:\n- name: a\n  queue: a\n  labels: {team: shop}\n  definition:\n    discard: true\n",
    )
    policy = effective(policies, "a")
    assert policy.labels == {"team": "shop", "tier": "1"}
    assert str(policy.settings["discard"].source) == f"{tmp_path}/1.yaml:7"
    assert policy.settings["discard"].source.policy == "a"


def test_a_queue_that_no_policy_names_has_none(tmp_path: Path) -> None:
    policies = loaded(tmp_path, "policies: [{name: a, match: 'a.#', vhost: shop}]").policies
    assert policies.resolve(vhost="shop", queue="b", reason="rejected", queue_type=None) is None
    assert policies.resolve(vhost="/", queue="a", reason="rejected", queue_type=None) is None


def test_own_queues_are_named_only_exactly(tmp_path: Path) -> None:
    policies = loaded(tmp_path, "policies: [{name: a, match: '#'}, {name: b, queue: dlx-router.parking}]").policies
    assert [
        policy.name for policy in policies.chain(vhost="/", queue="dlx-router.parking", own=True, queue_type=None)
    ] == ["b"]


def test_attachments_are_read_with_their_vhost(tmp_path: Path) -> None:
    attachments = loaded(
        tmp_path, "attachments: [{queue: legacy.failed}, {queue: b, mode: inbox, vhost: shop}]"
    ).attachments
    assert [
        (attachment.queue, attachment.mode, attachment.vhost, attachment.source.line) for attachment in attachments
    ] == [
        ("legacy.failed", "inbox", None, 2), ("b", "inbox", "shop", 2),
    ]  # fmt: skip


def test_the_revision_follows_names_and_contents_of_the_files_and_nothing_else(tmp_path: Path) -> None:
    texts = {"a.yaml": "version: 1\n", "b.yml": "version: 1\npolicies: []\n"}
    revisions = []
    for number, changed in enumerate([{}, {}, {"a.yaml": "version: 1 \n"}, {"c.yaml": "version: 1\n"}]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in (texts | changed).items():
            (folder / name).write_text(text)
        (folder / "a.test.yaml").write_text(f"is a test {number}")
        revisions.append(load_policies(folder).policies.revision)
    assert revisions[0] == revisions[1]
    assert len(set(revisions)) == 3
    assert all(len(revision) == 12 and int(revision, 16) >= 0 for revision in revisions)


def test_a_single_file_can_be_loaded_and_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("\ufeffversion: 1\npolicies: [{name: a, match: a}]\n", encoding="utf-8")
    assert [policy.name for policy in load_policies(tmp_path / "p.yaml").policies.policies] == ["a"]


def test_what_is_for_a_vhost_that_is_not_served_is_an_error(tmp_path: Path) -> None:
    policies = loaded(tmp_path, "policies: [{name: a, match: a, vhost: shop}]\nattachments: [{queue: q, vhost: x}]\n")
    policies.require_served(["shop", "x"])
    policies.require_served(["*"])
    with pytest.raises(PolicyErrors) as raised:
        policies.require_served(["/"])
    assert [(finding.code, finding.line) for finding in raised.value.findings] == [("DLX115", 2), ("DLX115", 3)]


def test_the_shipped_policies_are_without_findings() -> None:
    assert load_policies(SHIPPED).warnings == ()
