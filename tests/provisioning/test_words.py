"""apply and destroy say what they did and kept, and ask a person at a terminal, never a script."""

import json
import os
import pty
import subprocess
from collections.abc import Callable

import pytest

from tests.provisioning.test_provision import Commands
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router

POLICY = "version: 1\npolicies: [{name: a, match: 'orders.#', definition: {max-delivery-attempts: 1}}]\n"
JOURNAL = "dlx-router.journal"


@pytest.fixture
def commands(commands: Commands) -> Commands:
    commands.write(POLICY)
    return commands


def at_terminal(commands: Commands, answer: str, *args: str) -> tuple[int, str]:
    """Exit code and screen of a command whose three streams are a terminal where somebody types the answer."""
    argv, variables = commands.typed(*args)
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as running:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        screen = bytearray()
        try:
            while part := os.read(ours, 4096):
                screen += part
        except OSError:
            pass  # the other end is closed
        code = running.wait(60)
    os.close(ours)
    return code, screen.decode()


@pytest.mark.usefixtures("newest")
def test_apply_says_what_it_did(commands: Commands) -> None:
    first = commands.apply()
    (summary,) = [line for line in first.splitlines() if " created (" in line]
    assert "queue dlx-router.inbox" in summary
    assert "policy dlx-router.own" in summary
    assert summary.endswith("; 0 unchanged")
    again = commands.apply()
    assert f"vhost {commands.vhost.name}: nothing to do; " in again
    commands.write(POLICY.replace("orders", "pay"))
    done = json.loads(commands.run("apply", "--json").stdout)["vhosts"][0]["done"]
    assert {key: len(names) for key, names in done.items()} == {"created": 2, "changed": 0, "removed": 2}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_apply_and_destroy_ask_at_a_terminal_and_only_there(commands: Commands) -> None:
    code, screen = at_terminal(commands, "n", "apply")
    assert (code, "[y/N]" in screen, "nothing was changed" in screen) == (1, True, True), screen
    assert commands.policies() == {}
    assert commands.policies() == {}
    assert at_terminal(commands, "y", "apply")[0] == 0
    made = commands.policies()
    assert made
    code, screen = at_terminal(commands, "n", "destroy")
    assert (code, "[y/N]" in screen, "nothing was removed" in screen) == (1, True, True), screen
    code, screen = at_terminal(commands, "", "destroy", "--dry-run")
    assert (code, "- policy dlx-router.own" in screen, "[y/N]" in screen) == (0, True, False), screen
    assert commands.policies() == made
    code, screen = at_terminal(commands, "", "destroy", "--yes")
    assert (code, "[y/N]" in screen) == (0, False), screen
    assert commands.policies() == {}
    assert commands.run("apply").returncode == 0, "a script is not asked"
    assert commands.run("destroy").returncode == 0


@pytest.mark.usefixtures("newest")
def test_apply_asks_again_if_the_plan_changed_during_the_question(commands: Commands, amqp: Client) -> None:
    """The first answer was for another plan."""
    argv, variables = commands.typed("apply")
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True) as running:
        os.close(theirs)
        first = read_question(ours)
        amqp.exchange("dlx-router.return")
        os.write(ours, b"y\n")
        second = read_question(ours)
        os.write(ours, b"n\n")
        code = running.wait(60)
    os.close(ours)
    assert ("exchange dlx-router.return" in first, "exchange dlx-router.return" in second, code) == (True, False, 1), (
        first + second
    )
    assert commands.policies() == {}


def read_question(terminal: int) -> str:
    """The screen up to the next question."""
    screen = bytearray()
    while b"[y/N]" not in screen:
        screen += os.read(terminal, 4096)
    return screen.decode()


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_destroy_keeps_the_journal_unless_it_is_told(
    commands: Commands, amqp: Client, start_router: Callable[..., Router]
) -> None:
    commands.declare("orders.new", queue_type="quorum", dead_letter_exchange="dlx-router.inbox")
    commands.apply()
    router = start_router(commands.folder)
    amqp.publish(b"1", key="orders.new")
    amqp.fail("orders.new")
    eventually(lambda: amqp.exists("DLQ.orders.new") and amqp.depth("DLQ.orders.new") == 1, 20)
    assert router.stop() == 0
    done = commands.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kept: queue {JOURNAL}: the journal, which explains every letter; --with-journal removes it" in done.stdout
    assert [queue for queue in commands.vhost.queues() if queue.startswith("dlx-router.")] == [JOURNAL]
    assert commands.run("destroy").returncode == 0, "destroy may come twice"
    assert JOURNAL in commands.vhost.queues()
    removal = commands.run("destroy", "--with-journal")
    assert (removal.returncode, f"- queue {JOURNAL}" in removal.stdout) == (0, True), removal.stdout + removal.stderr
    assert commands.vhost.queues() == ["DLQ.orders.new", "orders.new"]


@pytest.mark.usefixtures("newest")
def test_whoever_is_asked_has_seen_what_would_change_where_the_answer_is_json_too(commands: Commands) -> None:
    """`apply --json` asked "make 4 changes?" of somebody who had seen none of them."""
    code, screen = at_terminal(commands, "n", "apply", "--json")
    plan, _, rest = screen.partition("[y/N]")
    assert (code, commands.policies()) == (1, {}), screen
    assert ("+ queue dlx-router.inbox" in plan, "+ policy dlx-router.own" in plan) == (True, True), screen
    assert "nothing was changed" in rest
    code, screen = at_terminal(commands, "", "apply", "--json", "--yes")
    document = json.loads(screen)
    assert (code, "[y/N]" in screen, len(document["vhosts"])) == (0, False, 1), screen
