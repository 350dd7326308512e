"""What Helm prints in the end: commands that can be typed, and that drop nothing."""

from collections.abc import Mapping
from typing import Any, Final

from tests.deploy.chart import notes

MINIMAL: Final[Mapping[str, Any]] = {"amqp": {"existingSecret": "rabbit"}}


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
