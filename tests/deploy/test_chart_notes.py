"""What Helm prints in the end: commands that can be typed, and that drop nothing."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.deploy.chart import VARIATIONS, notes, values_of

MINIMAL: Final[Mapping[str, Any]] = {"amqp": {"existingSecret": "rabbit"}}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_notes_lead_no_letters_to_a_router_that_moves_nothing(variation: str) -> None:
    text = notes(values_of(variation))
    observes = variation == "observe"
    assert ("set_policy" in text) is ("dlx-router apply" in text) is not observes
    assert ("dlx-router.observe" in text) is observes


def test_a_policy_by_hand_is_of_the_queues_vhost_of_our_name_and_loses_nothing_on_the_way() -> None:
    """It went to vhost / whatever was served, where no inbox is: what was rejected was dropped."""
    text = notes({**MINIMAL, "settings": {"vhosts": "shop, it's", "prefix": "ours"}})
    definition = (
        '{"dead-letter-exchange":"ours.inbox","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}'
    )
    for vhost in ("'shop'", r"'it'\''s'"):
        assert f"rabbitmqctl set_policy -p {vhost} ours '^orders\\.' '{definition}' --apply-to queues\n" in text
    assert text.count("set_policy") == 2
    assert "ONE policy" in text


@pytest.mark.parametrize("vhosts", ["", "*"])
def test_a_policy_by_hand_leaves_the_vhost_to_whoever_knows_it(vhosts: str) -> None:
    values = {**MINIMAL, "settings": {"vhosts": vhosts}, "management": {"existingSecret": "m"}}
    assert "set_policy -p VHOST dlx-router " in notes(values)


def test_plan_and_apply_come_first_and_ask_the_management_api() -> None:
    text = notes({**MINIMAL, "management": {"existingSecret": "m"}})
    assert "kubectl --namespace messaging exec deploy/shop-dlx-router -- dlx-router plan\n" in text
    assert text.index("dlx-router plan") < text.index("dlx-router apply") < text.index("set_policy")
    assert "name management.existingSecret" not in text
    assert "name management.existingSecret" in notes(MINIMAL)


def test_notes_say_how_commands_are_answered() -> None:
    exec_queues = "kubectl --namespace messaging exec deploy/shop-dlx-router -- dlx-router queues"
    without, token, command = (
        notes({**MINIMAL, "api": api})
        for api in ({}, {"tokensSecret": "tokens"}, {"tokensSecret": "tokens", "commandKey": "token"})
    )
    assert "create secret generic shop-dlx-router-api" in without
    assert "DLX_ROUTER_API_TOKEN" not in without, "no token can help"
    assert "a token of the Secret tokens" in token
    assert exec_queues not in token
    assert exec_queues in command


def test_notes_name_the_console_as_people_find_it() -> None:
    assert "The console: https://dlx.example.com/at/north/\n" in notes(values_of("told"))
    assert "The console: https://dlx.example.com\n" in notes(values_of("console"))
    assert "The console: http://127.0.0.1:9719 by the port-forward above\n" in notes(MINIMAL)


def test_who_scrapes_from_another_namespace_is_asked_for() -> None:
    monitoring = {"serviceMonitor": {"enabled": True}}
    network: dict[str, Any] = {"enabled": True}
    assert "a Prometheus there" in notes({**MINIMAL, "monitoring": monitoring, "networkPolicy": network})
    network["ingressFrom"] = [{"namespaceSelector": {}}]
    assert "a Prometheus there" not in notes({**MINIMAL, "monitoring": monitoring, "networkPolicy": network})
