"""The demo, as a newcomer runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.brokers import Broker

ROOT = Path(__file__).parents[2]


def demo(broker: Broker, seconds: int) -> str:
    """What it prints; it has said by its exit code that every message is accounted for."""
    env = {
        **os.environ,
        "DLX_ROUTER_TEST_AMQP_URL": broker.amqp_url,
        "DLX_ROUTER_TEST_MANAGEMENT_URL": broker.management_url,
    }
    argv = [sys.executable, "-m", "tools.demo.run", "--seconds", str(seconds)]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds + 60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout  # a pipe is no terminal
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_demo_ends_by_itself_and_accounts_for_every_message(broker: Broker) -> None:
    out = demo(broker, 8)
    totals = re.search(r"accounted for: ([0-9]+) of ([0-9]+) messages \(succeeded ([0-9]+), dead ([0-9]+)", out)
    assert totals is not None
    assert totals[1] == totals[2]
    assert int(totals[3]) > 0
    assert int(totals[4]) > 0
    assert "No outage" in out


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_demo_shows_an_outage_that_costs_no_letter(broker: Broker) -> None:
    out = demo(broker, 18)
    steps = (
        "the carrier is down",
        "the breaker opens",
        "the carrier is back",
        "a probe survived",
        "the breaker is closed",
    )
    positions = [out.index(f"*** shop.shipments: {step}") for step in steps]
    assert positions == sorted(positions)
    assert "dead by the outage 0" in out
    counts = re.search(r"held (\d+) times, (\d+) probes; no message used more than (\d+) of its (\d+) attempts", out)
    assert counts is not None
    held, probes, most, attempts = map(int, counts.groups())
    assert held > 0
    assert probes > 0
    assert most < attempts
