"""Clients of Node.js: amqplib with every type of header that it can write, rhea with every property of AMQP 1.0."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.conftest import MODULES
from tests.clients.sameness import HERE, RETURN, Desk, ends, lines, own, ways

pytestmark = pytest.mark.clients
LIMITS: Final = (Path(__file__).parents[2] / "docs/limits.md").read_text(encoding="utf-8")


@pytest.fixture
def program(node: str) -> Callable[..., list[Any]]:
    """program("x.js", …) → what it printed; it has to end well."""

    def run(script: str, *given: object) -> list[Any]:
        done = subprocess.run(
            [node, str(HERE / script), *map(str, given)], env={"NODE_PATH": str(MODULES)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return lines(done.stdout)

    return run


def test_amqplib_gets_back_what_it_sent(desk: Desk, program: Callable[..., list[Any]]) -> None:
    queue = ways(desk, "amqplib")
    first, second = program("amqplib_client.js", desk.vhost.amqp_url, "shop", queue, queue, 2)
    assert (first["exchange"], second["exchange"]) == ("shop", RETURN)
    assert first["routingKey"] == second["routingKey"] == queue
    for delivery in (first, second):
        delivery["properties"]["headers"] = own(delivery["properties"]["headers"])
        del delivery["exchange"]
    assert first == second
    dead = dict(ends(desk, queue).headers)
    assert dead["x-double"] == ("d", 3.14159)
    assert dead["x-decimal"] == ("D", (2, 1500))
    assert dead["x-bytes"] == ("x", b"\x00\xff\xfe")


# What a 0-9-1 client cannot be handed, hence the router neither; limits.md names each.
LOST: Final = "subject", "to", "group_sequence", "reply_to_group_id", "absolute_expiry_time", "ttl"
CUT: Final = "2025-11-22T08:26:40.123Z", "2025-11-22T08:26:40.000Z"


@pytest.mark.parametrize("section", ["data", "value"])
def test_amqp_10_loses_what_limits_md_says(desk: Desk, program: Callable[..., list[Any]], section: str) -> None:
    queue = ways(desk, "rhea")
    port = desk.vhost.amqp_url.rpartition(":")[2].partition("/")[0]
    first, second = program("rhea_client.js", port, desk.vhost.name, "shop", queue, queue, 2, section)
    assert all(first.pop(name) for name in LOST)
    assert [name for name in LOST if name in second] == []
    noted, noted_again = first.pop("message_annotations"), second.pop("message_annotations")
    assert (noted["x-exchange"], noted_again["x-exchange"]) == ("shop", RETURN)
    assert (noted["x-opt-mine"], noted["x-routing-key"]) == (noted_again["x-opt-mine"], noted_again["x-routing-key"])
    sent, again = first.pop("application_properties"), own(second.pop("application_properties"))
    assert (first.pop("creation_time"), second.pop("creation_time")) == CUT
    assert (sent.pop("moment"), again.pop("moment")) == CUT
    assert again.pop("flag") == sent.pop("flag"), "rhea shows a boolean as true or as 1"
    assert (first, sent) == (second, again)
    ends(desk, queue)
    for name in LOST:
        assert name.replace("_", "-") in LIMITS
    assert "creation-time" in LIMITS
