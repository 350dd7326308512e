"""`policy explain`: every key and who set it, the schedule of waits, and the end of a letter."""
# ruff: noqa: E501 - a row of a table is read as one line

from pathlib import Path

import pytest

from dlx_router.cli import policy_explain as explain
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.policy import Effective
from tests.cli.test_cli import in_a_process

POLICIES = Path(__file__).parents[2] / "policies"


def effective(definition: str, folder: Path) -> Effective:
    text = f"version: 1\npolicies: [{{name: a, match: '#', definition: {definition}}}]\n"
    (folder / "p.yaml").write_text(text)
    policy = load_policies(folder).policies.resolve(vhost="/", queue="q", reason="rejected", queue_type=None)
    assert policy is not None
    return policy


def test_explain_shows_keys_sources_waits_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    explain.explain("orders.new", policies=POLICIES)
    out = capsys.readouterr().out
    lines = {tuple(line.split()) for line in out.splitlines()}
    assert ("max-delivery-attempts", "5", f"{POLICIES}/orders.yaml:13", "(orders)") in lines
    assert ("max-redrives", "3", "default") in lines
    assert ("4", "40s", "34s", "…", "46s") in lines
    assert ("rejected", "4", "times", "default", "exchange,", "key", "orders.failed") in lines
    assert ("expired", "no", "queue", "DLQ.orders.new", "(quorum,", "created", "when", "needed)") in lines
    assert ("application:invalid", "no", "default", "exchange,", "key", "orders.failed") in lines


TARGETS = [
    ("dead-letter-exchange: dlx", "exchange dlx, original keys"),
    ("{dead-letter-exchange: dlx, dead-letter-routing-key: 'dead.{queue}.{reason}.{attempts}.{header:x}.{routing_key}'}",
     "exchange dlx, key dead.q.rejected.10.<header:x>.<routing_key>"),
    ("{dead-letter-exchange: dlx, dead-letter-routing-key-rewrite: [{match: a, replace: b}]}", "rewritten where a rewrite matches"),
    ("{dead-letter-exchange: dlx, auto-create-dead-letter-resources: true}", "queue DLQ.q (quorum, created when needed) by exchange dlx"),
    ("{dead-letter-queue-type: classic}", "queue DLQ.q (classic, created when needed)"),
    ("{max-delivery-attempts: -1}", "none: tried again without limit"),
    ("{discard: true}", "dropped (discard: true)"),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "words"), TARGETS)
def test_explain_says_where_a_letter_ends(
    definition: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = definition if definition.startswith("{") else f"{{{definition}}}"
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies: [{{name: a, match: '#', definition: {body}}}]\n")
    explain.explain("q", policies=tmp_path, reason="rejected")
    assert words in capsys.readouterr().out


def test_explain_of_a_queue_without_policy_says_that_its_letters_are_parked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, match: a}]\n")
    explain.explain("b", policies=tmp_path)
    assert "parked (no_policy)" in capsys.readouterr().out


SCHEDULES = [
    ("{redelivery-delay: 5000, redelivery-delay-multiplier: 2, max-redelivery-delay: 15000, max-delivery-attempts: 4}",
     [(1, 1, 5000, 5000, 5000), (2, 2, 10_000, 10_000, 10_000), (3, 3, 15_000, 15_000, 15_000)]),
    ("{redelivery-delay: 1000, max-redelivery-delay: 15000, redelivery-collision-avoidance-factor: 0.5, max-delivery-attempts: 4}",
     [(1, 3, 1000, 500, 1500)]),
    ("{redelivery-delay: 1s, redelivery-delay-multiplier: 10, max-delivery-attempts: -1}",
     [(1, 1, 1000, 1000, 1000), (2, 0, 10_000, 10_000, 10_000)]),
    ("{redelivery-delay: 5ms, redelivery-delay-multiplier: 1.1, max-redelivery-delay: 7ms, max-delivery-attempts: 9}",
     [(1, 1, 5, 5, 5), (2, 2, 5, 5, 5), (3, 3, 6, 6, 6), (4, 4, 6, 6, 6), (5, 8, 7, 7, 7)]),
    ("{redelivery-delay: 1s, redelivery-delay-multiplier: 2, max-redelivery-delay: 1d, max-delivery-attempts: 20}",
     [*((at, at, *(1000 << at - 1,) * 3) for at in range(1, 13)), (13, 19, None, 4_096_000, 86_400_000)]),
    ("{redelivery-delay: 1s, redelivery-delay-multiplier: 2, max-redelivery-delay: 1d, max-delivery-attempts: 14}",
     [(at, at, *(1000 << at - 1,) * 3) for at in range(1, 14)]),
    ("{redelivery-delay: 10m, redelivery-delay-multiplier: 0.5, max-delivery-attempts: -1}",
     [*((at, at, *(600_000 >> at - 1,) * 3) for at in range(1, 13)), (13, 0, None, 0, 146)]),
    ("{redelivery-delay: 2ms, redelivery-delay-multiplier: 0.5, max-delivery-attempts: -1}",
     [(1, 1, 2, 2, 2), (2, 2, 1, 1, 1), (3, 0, 0, 0, 0)]),
    ("{redelivery-delay: 0, redelivery-delay-multiplier: 2, max-redelivery-delay: 1s}", [(1, 9, 0, 0, 0)]),
    ("{discard: true, max-delivery-attempts: 3}", [(1, 2, 0, 0, 0)]),
    ("{max-delivery-attempts: 1}", []),
    ("{max-delivery-attempts: 3}", [(1, 2, 0, 0, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "expected"), SCHEDULES)
def test_a_schedule_has_the_numbers_of_artemis(definition: str, expected: list[explain.Wait], tmp_path: Path) -> None:
    assert explain.schedule(effective(definition, tmp_path)) == expected


def test_a_header_may_name_only_the_allowed_queues(tmp_path: Path) -> None:
    keys = "dead-letter-exchange: '', dead-letter-routing-key: 'work{header:to}', allow-queues: ['failed.#']"
    assert explain.target(effective(f"{{{keys}}}", tmp_path), "q", "/", "rejected") == "parking (forbidden)"


def test_explain_says_how_the_queue_itself_is_attended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text(
        "version: 1\nattachments:\n"
        "- {match: 'in.#', mode: inbox}\n"
        "- {queue: in.a, mode: relay, forward-to: {exchange: work, routing-key: 'to.{routing_key}'}}\n"
        "policies: [{name: a, queue: in.a, definition: {max-length: 5}}]\n"
    )
    explain.explain("in.a", policies=tmp_path)
    out = capsys.readouterr().out
    assert (
        f"Queue in.a is attached ({tmp_path}/p.yaml:4), mode relay: what lives goes on to exchange work with key to.{{routing_key}}."
        in out
    )
    explain.explain("in.b", policies=tmp_path)
    assert "mode inbox." in capsys.readouterr().out


TYPED = """\
version: 1
policies:
  - {name: any, match: '#', definition: {max-delivery-attempts: 3}}
  - {name: slow, match: '#', priority: 1, apply-to: quorum_queues, definition: {redelivery-delay: 5s}}
  - {name: quick, match: '#', priority: 1, apply-to: classic_queues, definition: {redelivery-delay: 1s}}
"""


def test_explain_shows_the_policies_for_the_type_and_else_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(TYPED)
    for kind, delay in (("quorum", "5s"), ("classic", "1s")):
        explain.explain("q", policies=tmp_path, queue_type=explain.QueueType(kind))
        out = capsys.readouterr().out
        assert any(line.split()[:2] == ["redelivery-delay", delay] for line in out.splitlines())
        assert "left out" not in out
        assert ("\ndelivery_limit" in out) == (kind == "quorum")
    explain.explain("q", policies=tmp_path)
    out = capsys.readouterr().out
    assert f"policy slow ({tmp_path}/p.yaml:4) is for quorum queues only: left out; see --queue-type\n" in out
    assert f"policy quick ({tmp_path}/p.yaml:5) is for classic queues only: left out; see --queue-type\n" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--queue-type", "stream"], "stream"),
        (["--queue-type", "classic", "--reason", "delivery_limit"], "only quorum queues"),
    ],
)
def test_wrong_types_and_versions_are_said(arguments: list[str], words: str) -> None:
    done = in_a_process("policy", "explain", "orders.new", "--policies", str(POLICIES), *arguments)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(("prefix", "said"), [("shop", "parked (no_policy)"), ("", "policies a (revision")])
def test_explain_knows_the_routers_own_queues_by_the_prefix(prefix: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, match: '#'}]\n")
    env = {"PREFIX": prefix} if prefix else {}
    done = in_a_process("policy", "explain", "shop.parking", "--policies", str(tmp_path), **env)
    assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_prefix_holds_for_delayed_exchanges_too_in_explain_and_lint(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\ndelayed: [{exchange: dlx-router.later, to: work}]\n")
    done = in_a_process(
        "policy", "explain", "shop.delayed.dlx-router.later", "--policies", str(tmp_path), PREFIX="shop"
    )
    assert (done.returncode, "is delayed" in done.stdout) == (0, True), done.stdout + done.stderr
    file.write_text("version: 1\ndelayed: [{exchange: shop.inbox, to: work}]\n")
    done = in_a_process("policy", "lint", str(tmp_path), PREFIX="shop")
    assert (done.returncode, 'exchange "shop.inbox" is the router\'s own' in done.stdout) == (1, True), done.stdout


@pytest.mark.parametrize("command", [("explain", "a", "--policies"), ("lint",), ("test",)])
def test_a_prefix_that_is_none_is_said(command: tuple[str, ...], tmp_path: Path) -> None:
    done = in_a_process("policy", *command, str(tmp_path), PREFIX="amq.shop")
    assert (done.returncode, "DLX_ROUTER_PREFIX: not a prefix; write letters" in done.stderr) == (2, True), done.stderr
