"""What nobody foresaw is told in one line, by whatever way it comes; a traceback only where somebody asks for it."""

import os
import subprocess
import sys
from typing import Final

import pytest

TRACES: Final = ("Traceback", 'File "', 'File \\"')
PREPARE: Final = "from dlx_router.telemetry import logs\nlogs.configure('{form}', '{level}')\nlogs.take_faults()\n"
WAYS: Final = {
    "the end of the process": "raise ValueError('amqp://u:hunter2@h/')",
    "a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
    "a destructor": "class A:\n    def __del__(self): raise ValueError('gone')\na = A()\ndel a",
    "a task that nobody awaits": """
import asyncio, gc
async def fail(): raise ValueError('lost')
async def main():
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)
    gc.collect()
asyncio.run(main())""",
    "a callback of the loop": """
import asyncio
async def main():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)
asyncio.run(main())""",
    "a library's log": "import logging\ntry: 1 / 0\nexcept ArithmeticError: logging.getLogger('l').exception('')",
    "a warning": "import warnings\nwarnings.warn('old')",
    "a line that cannot be made": "import logging\nlogging.warning('%d', 'x')\nlogging.error('next')",
}


def printed(code: str, *, into: int = subprocess.PIPE) -> str:
    """What a process that runs this code prints."""
    argv = [sys.executable, "-c", code]
    env = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=into, text=True, check=False, timeout=120, env=env)
    return (done.stdout or "") + (done.stderr or "")


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("way", WAYS)
def test_a_fault_of_the_router_is_one_line_of_the_log_by_whatever_way_it_comes(way: str, form: str) -> None:
    output = printed(PREPARE.format(form=form, level="info") + WAYS[way])
    assert output.count("\n") == 1, output
    assert not any(trace in output for trace in TRACES), output
    assert "hunter2" not in output


@pytest.mark.parametrize("way", [way for way in WAYS if way not in {"a warning", "a line that cannot be made"}])
def test_a_fault_of_a_command_is_one_line_too(way: str) -> None:
    output = printed(f"from dlx_router.telemetry import faults\nfaults.install()\n{WAYS[way]}")
    assert output.startswith("dlx-router: ")
    assert "report" in output
    assert output.count("\n") == 1, output
    assert not any(trace in output for trace in TRACES), output
    assert "hunter2" not in output


@pytest.mark.parametrize(
    "command", [["policy", "lint", "policies"], ["policy", "schema"], ["--help"], ["run", "--help"]]
)
def test_nobody_who_reads_what_a_command_says_is_no_traceback(command: list[str]) -> None:
    for way in ("> /dev/full", ">&-", "2>&- >/dev/full", "| true"):
        typed = f"{sys.executable} -m dlx_router {' '.join(command)} {way}"
        done = subprocess.run(typed, shell=True, capture_output=True, text=True, check=False, timeout=120)
        assert not any(trace in done.stdout + done.stderr for trace in (*TRACES, "Exception ignored")), done
