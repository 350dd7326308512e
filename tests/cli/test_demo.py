"""The demo, as a newcomer runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from brokers import Broker

ROOT = Path(__file__).parents[2]


def test_the_demo_ends_by_itself_and_accounts_for_every_message(broker: Broker) -> None:
    env = {
        **os.environ,
        "DLX_ROUTER_TEST_AMQP_URL": broker.amqp_url,
        "DLX_ROUTER_TEST_MANAGEMENT_URL": broker.management_url,
    }
    argv = [sys.executable, "tools/demo.py", "--seconds", "8"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"accounted for: ([0-9]+) of ([0-9]+) messages \(succeeded ([0-9]+), dead ([0-9]+)", done.stdout)
    assert "\x1b" not in done.stdout  # a pipe is no terminal
    assert told is not None
    assert told[1] == told[2]
    assert int(told[3]) > 0
    assert int(told[4]) > 0
