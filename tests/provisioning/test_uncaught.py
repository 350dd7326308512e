"""DLX201: plan, apply, lint and doctor say one text of a queue that no policy catches, and its advice ends it."""

import re
from pathlib import Path

import pytest

from tests.provisioning.test_provision import Commands
from tests.support.vhost import Vhost

POLICY = "version: 1\npolicies: [{name: a, match: 'orders.#'}]\n"
SAYS = re.compile(r"queue orders\.old: its argument x-dead-letter-exchange names .*?, or with dlx-router\.inbox")


def surfaces(commands: Commands) -> dict[str, list[str]]:
    """What each of the four says of the queue."""
    asked = {"plan": ("plan",), "apply": ("apply",), "doctor": ("doctor",)}
    runs = {name: commands.run(*words) for name, words in asked.items()}
    runs["lint"] = commands.run("policy", "lint", str(commands.folder), "--broker", POLICIES=str(commands.folder))
    return {name: SAYS.findall(done.stdout) for name, done in runs.items()}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_advice_of_dlx201_ends_it_on_all_four_surfaces(vhost: Vhost, tmp_path: Path) -> None:
    commands = Commands(vhost, tmp_path)
    commands.write(POLICY)
    commands.declare("orders.old", dead_letter_exchange="old-dlx")
    vhost.put(f"exchanges/{vhost.quoted}/old-dlx", {"type": "topic", "durable": True})
    commands.declare("old.failed")
    lines = surfaces(commands)
    assert {name: len({*texts}) for name, texts in lines.items()} == dict.fromkeys(lines, 1), lines
    assert len({texts[0] for texts in lines.values()}) == 1, lines
    attached = POLICY + 'attachments: [{queue: old.failed, dead-letter-exchanges: "old-dlx"}]\n'
    commands.write(attached)
    for texts in surfaces(commands).values():
        assert texts, "nothing that dies there reaches the attached queue"
    vhost.api.post(
        f"bindings/{vhost.quoted}/e/old-dlx/q/old.failed", json={"routing_key": "orders.#"}
    ).raise_for_status()
    commands.write(POLICY)
    assert "attachments: - {queue: old.failed, dead-letter-exchanges" in surfaces(commands)["plan"][0]
    commands.write(attached)
    assert surfaces(commands) == {name: [] for name in lines}
    assert commands.run("apply").returncode == 0
    assert commands.run("plan").returncode == 0
