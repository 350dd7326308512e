"""The commands of the pages run as they stand there, from the top of a page to its end (see pages.py for how)."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.docs.pages import PAGES, ROOT, Block, Page, read
from tests.support.eventually import eventually
from tools import brokers

RUN: Final = [page for page in map(read, PAGES) if any("run" in block.info[1:] for block in page.blocks)]
PLAIN: Final = [page for page in RUN if not any("broker" in block.info for block in page.blocks)]
WORDS: Final = {"run", "broker", "background", "eventually", "terminal"}
COLUMNS: Final = 80  # of a terminal
WITHIN_S: Final = 40


class Shell:
    """An empty folder with `policies` and `docs`, a `dlx-router` on the path, and what was started there."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder / "here"
        self._programs = folder / "bin"
        self._env = env
        self._started: list[subprocess.Popen[bytes]] = []
        for path in (self.folder, self._programs):
            path.mkdir()
        for name in ("policies", "docs"):
            shutil.copytree(ROOT / name, self.folder / name)
        self._program("dlx-router", f'exec "{sys.executable}" -m dlx_router "$@"')
        self._program("python3", f'exec "{sys.executable}" "$@"')

    def _program(self, name: str, text: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def let(self, write: Callable[[Path], None]) -> None:
        """A `rabbitmqctl` beside the others."""
        write(self._programs / "rabbitmqctl")

    @property
    def _variables(self) -> dict[str, str]:
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        path = f"{self._programs}:{os.environ['PATH']}"
        return {**others, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **self._env}

    def run(self, block: Block) -> tuple[int, str]:
        """How a block ended, and what it printed."""
        argv = ["bash", "-e", "-u", "-o", "pipefail", "-c", block.text]
        if "terminal" in block.info:
            return on_a_terminal(argv, self.folder, self._variables)
        done = subprocess.run(
            argv, cwd=self.folder, env=self._variables, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def start(self, block: Block) -> None:
        """Run a block while the page goes on; it is a router, and ready when this returns."""
        with (self.folder / "background.log").open("ab") as log:
            argv = ["bash", "-e", "-c", f"exec {block.commands[0]}"]
            process = subprocess.Popen(argv, cwd=self.folder, env=self._variables, stdout=log, stderr=log)
        self._started.append(process)
        url = f"http://127.0.0.1:{self._env['DLX_ROUTER_HTTP_PORT']}/readyz"

        def ready() -> bool:
            if process.poll() is not None:
                pytest.fail((self.folder / "background.log").read_text())
            try:
                answer = httpx.get(url, timeout=5, trust_env=False)
            except httpx.TransportError:
                return False
            return answer.status_code == 200

        eventually(ready, WITHIN_S, every=0.1)

    def close(self) -> None:
        """End what goes on."""
        for process in self._started:
            process.send_signal(signal.SIGTERM)
            process.wait(WITHIN_S)


def on_a_terminal(argv: list[str], folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    """How it ended, and what a person sees of it; nobody types anything."""
    env = {name: value for name, value in variables.items() if name != "COLUMNS"} | {"NO_COLOR": "1", "TERM": "dumb"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    stdio: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
    shown = bytearray()
    with subprocess.Popen(argv, cwd=folder, env=env, **stdio) as process:
        os.close(theirs)
        killer = threading.Timer(WITHIN_S, process.kill)
        killer.start()
        with suppress(OSError):  # EIO: nobody has the terminal any more
            while piece := os.read(ours, 65_536):
                shown += piece
        code = process.wait()
        killer.cancel()
    os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test has opened is closed after it."""
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PLAIN])
def test_commands_that_need_no_broker(page: Page, tmp_path: Path) -> None:
    _played(page, Shell(tmp_path, {}))


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in RUN if page not in PLAIN])
def test_commands_on_a_broker(page: Page, own_broker: brokers.Node, tmp_path: Path, stack: ExitStack) -> None:
    port = brokers.free_port()
    env = {
        "DLX_ROUTER_AMQP_URL": own_broker.amqp_url,
        "DLX_ROUTER_MANAGEMENT_URL": own_broker.management_url,
        "DLX_ROUTER_HTTP_PORT": str(port),
        "DLX_ROUTER_API_URL": f"http://127.0.0.1:{port}",
    }
    shell = Shell(tmp_path, env)
    stack.callback(shell.close)
    shell.let(own_broker.write_rabbitmqctl)
    _played(page, shell)


def _played(page: Page, shell: Shell) -> None:
    blocks = page.blocks
    for number, block in enumerate(blocks):
        if "run" not in block.info[1:] or block.info[0] != "console":
            continue
        assert {word for word in block.info[1:] if not word.startswith("exits=")} <= WORDS, f"{page.name}:{block.line}"
        follows = blocks[number + 1] if number + 1 < len(blocks) else None
        expected = follows.text if follows is not None and follows.info == ("text", "output") else None
        if "background" in block.info:
            shell.start(block)
        elif "eventually" in block.info:
            eventually(partial(_as_written, page, block, expected, shell), WITHIN_S)
        else:
            _as_written(page, block, expected, shell)


def _as_written(page: Page, block: Block, expected: str | None, shell: Shell) -> bool:
    code, printed = shell.run(block)
    wanted = next((int(word.removeprefix("exits=")) for word in block.info if word.startswith("exits=")), 0)
    assert code == wanted, f"{page.name}:{block.line} ended with {code}:\n{printed}"
    assert expected is None or is_like(printed, expected), f"{page.name}:{block.line} printed:\n{printed}"
    return True


def is_like(printed: str, expected: str) -> bool:
    """Whether it is the expected text; `…` is any text, a line of it any lines; blanks at ends do not count."""
    plain = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    lines = (line.rstrip() for line in expected.strip().splitlines())
    pattern = (r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    return re.fullmatch("".join(pattern), plain) is not None


def test_what_a_block_prints_is_compared() -> None:
    assert is_like("a 12 b\n", "a … b\n")
    assert is_like("a\nb\nc\nd\n", "a\n…\nd")
    assert not is_like("a\nb\n", "a\nc")
    assert not is_like("a 12 c\n", "a … b\n")


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in (ROOT / "docs/examples").rglob("*.test.yaml")), ids=str
)
def test_an_example_is_sound_tested_and_the_one_of_its_page(folder: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {})
    for command in ("lint", "test"):
        code, printed = shell.run(Block((), f"dlx-router policy {command} {folder}", 0))
        assert code == 0, printed
    (example,) = (path for path in folder.glob("*.yaml") if not path.name.endswith(".test.yaml"))
    text = example.read_text(encoding="utf-8")
    assert any(block.text == text for path in PAGES for block in read(path).blocks), f"{example} is on no page"
