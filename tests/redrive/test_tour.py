"""docs/tour.md, run as it is written: every block, in its order, and what it prints compared with what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.brokers import Node, free_port

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 600
BLOCK: Final = re.compile(r"^```(bash|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK: Final = "=== end of block"


def commands_and_output() -> tuple[list[str], dict[int, str]]:
    """The blocks of commands, and by its number what a block prints."""
    commands: list[str] = []
    printed: dict[int, str] = {}
    for kind, text in BLOCK.findall((ROOT / "docs" / "tour.md").read_text(encoding="utf-8")):
        if kind == "bash":
            commands.append(text)
        else:
            printed[len(commands) - 1] = text
    return commands, printed


def environment(broker: Node, folder: Path) -> dict[str, str]:
    """As a newcomer has it: the commands on the path, and the broker's address."""
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, args in (("dlx-router", "-m dlx_router "), ("python", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {args}"$@"\n', encoding="utf-8")
        (bin_ / name).chmod(0o755)
    port = free_port()
    own = {"AMQP_URL": broker.amqp_url, "MANAGEMENT_URL": broker.management_url, "HTTP_PORT": str(port)}
    own["API_URL"] = f"http://127.0.0.1:{port}"
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    path = {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**others, **{f"DLX_ROUTER_{key}": value for key, value in own.items()}, **path}


@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S + 30)
@pytest.mark.usefixtures("newest")
def test_the_tour_goes_as_it_says_within_three_minutes(own_broker: Node, tmp_path: Path) -> None:
    commands, printed = commands_and_output()
    assert (len(commands) > 5, len(printed) > 5) == (True, True)
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    script += "".join(f"{block}echo '{MARK}'\n" for block in commands)
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path / "work",
        env=environment(own_broker, tmp_path),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"{MARK}\n")
    for number, text in printed.items():
        lines = iter(outputs[number].splitlines())
        for wanted in text.splitlines():
            pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
            assert any(pattern.fullmatch(line) for line in lines), f"{wanted!r} is not in\n{outputs[number]}"
