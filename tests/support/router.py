"""The router as people run it: `python -m dlx_router run` in a process of its own, asked over HTTP."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from tests.support.answers import status_and_text
from tests.support.eventually import eventually, patience
from tests.support.nursery import Forked
from tests.support.plain_http import NO_TLS
from tools.brokers import free_port

Sample = tuple[str, frozenset[tuple[str, str]]]
"""Its name, and its labels with their values."""

_ROOT: Final = Path(__file__).parents[2]
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def _pythons(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key.startswith("PYTHON")}


_PYTHON: Final = _pythons(os.environ)  # a test that sets another wants an interpreter that begins with it


class RouterEndedError(Exception):
    """The router ended before it was ready; the text is what it printed."""


class Router:
    """One router process. `log` holds all that it printed, over restarts too."""

    forks = False  # whether they begin at once, see nursery.py; the tests say so

    def __init__(
        self,
        *,
        amqp_url: str,
        policies: Path,
        log: Path,
        management_url: str | None = None,
        env: Mapping[str, str] | None = None,
        tree: str | Path = _ROOT,
    ) -> None:
        """`env`: without the prefix DLX_ROUTER_; it wins over what is set here. `tree`: its code. Not started yet."""
        self.port = free_port()
        self.policies = policies
        self.log = log
        own = {"AMQP_URL": amqp_url, "POLICIES": str(policies), "HTTP_PORT": str(self.port)}
        own |= {"MANAGEMENT_URL": management_url} if management_url else {}
        self.settings = own | dict(env or {})
        self._tree = Path(tree)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False, verify=NO_TLS)
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self, *args: str, wait: bool = True, within: float = 20) -> "Router":
        """`python -m dlx_router run ARGS`; when this returns it is ready. `wait=False`: it was only started."""
        argv = ["run", "--policies", str(self.policies), *args]
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        named = {f"DLX_ROUTER_{key}": value for key, value in self.settings.items()}
        env = {**others, **named, "PYTHONUNBUFFERED": "1"}
        forks = self.forks and _pythons(os.environ) == _PYTHON and self._tree == _ROOT
        self._process = Forked(argv, env, _ROOT, self.log) if forks else _executed(argv, env, self.log, self._tree)
        if wait:
            self.await_ready(within)
        return self

    def await_ready(self, within: float = 20) -> None:
        """/readyz says 200 and every source is consumed; RouterEndedError at once if the process is gone."""

        def ready() -> bool:
            if not self.running:
                message = f"exit {self.exit_code}:\n{self.output}"
                raise RouterEndedError(message)
            status, text = self.ask("/readyz")
            assert status == 200, f"/readyz: {status} {text}\n{self.output[-2000:]}"
            assert not self.metric("source_unattended"), text
            return True

        eventually(ready, within, every=0.05)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of a GET; (0, why) if nobody answers."""
        return status_and_text(self._http, path)

    def says_ready(self, status: int, *words: str) -> bool:
        """Whether /readyz has this status and these words; AssertionError shows what it has."""
        code, text = self.ask("/readyz")
        missing = [word for word in words if word not in text]
        assert (code, missing) == (status, []), f"{code} {text}"
        return True

    def metrics(self) -> dict[Sample, float]:
        """Every sample of /metrics: (name, labels) → value."""
        return dict(self._samples(""))

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples called `dlx_router_NAME` that carry these labels; 0 if there is none."""
        wanted = labels.items()
        return sum(value for (_, has), value in self._samples(f"dlx_router_{name}") if wanted <= has)

    def _samples(self, name: str) -> Iterator[tuple[Sample, float]]:
        """Of this name, "" for all; ValueError where nobody answers."""
        status, text = self.ask("/metrics")
        if status != 200:
            raise ValueError(text)
        return samples(text, name)

    @property
    def running(self) -> bool:
        """The process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last process; None while it runs."""
        return self._process.poll() if self._process else None

    @property
    def pid(self) -> int:
        """Of the last process."""
        assert self._process
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, SIGHUP or SIGSTOP say."""
        assert self._process
        self._process.send_signal(number)

    def stop(self, within: float = 30) -> int:
        """SIGTERM; its exit code once it is gone. Killed, and TimeoutExpired raised, if it stays longer."""
        assert self._process
        if self.running:
            self._process.terminate()
        try:
            return self._process.wait(patience(within))
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Killed, connections closed; safe to repeat."""
        self.kill()
        self._http.close()


def samples(text: str, name: str = "") -> Iterator[tuple[Sample, float]]:
    """Of this name, "" for all. Prometheus' own parser takes ten times as long, and tests ask many times a second."""
    for line in text.split("\n"):
        if not line or line.startswith("#") or not line.startswith(name):
            continue
        if not (sample := _SAMPLE.fullmatch(line)):
            raise ValueError(line)
        if name in {sample[1], ""}:
            labels = ((key, _ESCAPED.sub(_unescaped, value)) for key, value in _LABEL.findall(sample[2] or ""))
            yield (sample[1], frozenset(labels)), float(sample[3])


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _executed(argv: list[str], env: Mapping[str, str], log: Path, tree: Path) -> subprocess.Popen[bytes]:
    whole = [sys.executable, "-m", "dlx_router", *argv]
    with log.open("ab") as output:
        return subprocess.Popen(whole, env=env, cwd=tree, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
