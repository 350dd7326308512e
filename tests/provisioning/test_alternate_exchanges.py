"""Alternate exchanges on exchanges of the router's own: apply shadows a policy, and refuses an argument."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.provisioning.test_provision import Commands
from tests.support.client import Client, Unroutable
from tests.support.vhost import Vhost

RETURN: Final = "dlx-router.return"


@pytest.fixture
def commands(vhost: Vhost, tmp_path: Path, amqp: Client) -> Commands:
    amqp.bind(amqp.queue("elsewhere"), amqp.exchange("anything", "fanout"))
    return Commands(vhost, tmp_path)


def catch_all(commands: Commands) -> None:
    """A policy of somebody else on every exchange."""
    body = {"pattern": ".*", "definition": {"alternate-exchange": "anything"}, "priority": 7, "apply-to": "exchanges"}
    commands.vhost.put(f"policies/{commands.vhost.quoted}/catch-all", body)


def diagnoses(commands: Commands) -> list[dict[str, Any]]:
    """What doctor says."""
    rows: list[dict[str, Any]] = json.loads(commands.run("doctor", "--json").stdout)
    return rows


@pytest.mark.slow
def test_what_the_return_exchange_cannot_route_comes_back_once_apply_was_run(commands: Commands, amqp: Client) -> None:
    catch_all(commands)
    commands.apply()
    with pytest.raises(Unroutable):
        amqp.publish("one", key="to:nobody", exchange=RETURN)
    assert commands.plan()["steps"] == []
    assert commands.policies()["dlx-router.own"]["apply-to"] == "all"
    assert commands.run("destroy").returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_policy_of_an_apply_of_before_is_widened_to_exchanges(commands: Commands, amqp: Client) -> None:
    commands.apply()
    own = commands.policies()["dlx-router.own"]
    kept = {key: own[key] for key in ("pattern", "definition", "priority")}
    commands.vhost.put(f"policies/{commands.vhost.quoted}/dlx-router.own", {**kept, "apply-to": "queues"})
    catch_all(commands)
    amqp.publish("one", key="to:nobody", exchange=RETURN)  # it is confirmed
    assert amqp.take("elsewhere").body == b"one"
    (row,) = [row for row in diagnoses(commands) if row["check"] == "own exchanges" and RETURN in row["found"]]
    assert (row["level"], "policy 'catch-all' sets alternate-exchange" in row["found"]) == ("error", True)
    (step,) = [step for step in commands.plan()["steps"] if step["name"] == "dlx-router.own"]
    assert (step["action"], step["name"], step["apply-to"], step["was"]["apply-to"]) == (
        "change", "dlx-router.own", "all", "queues",
    )  # fmt: skip
    commands.apply()
    with pytest.raises(Unroutable):
        amqp.publish("two", key="to:nobody", exchange=RETURN)
    assert [row for row in diagnoses(commands) if row["check"] == "own exchanges"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_apply_changes_nothing_where_an_exchange_of_ours_was_declared_with_an_alternate_one(
    commands: Commands, amqp: Client
) -> None:
    amqp.channel.exchange_declare(RETURN, "direct", durable=True, arguments={"alternate-exchange": "anything"})
    before = commands.definitions()
    done = commands.run("apply")
    assert (done.returncode, commands.definitions() == before) == (1, True), done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert f"exchange '{RETURN}' has alternate-exchange 'anything' where the router declares (none)" in said
    assert "somebody else declared it" in said
    assert any(RETURN in row["found"] for row in diagnoses(commands) if row["check"] == "plan")
    amqp.channel.exchange_delete(RETURN)
    commands.apply()
