"""Routers and commands that begin at once: forked from a process that has imported the program and done nothing else.

Importing costs each of them some half a second of processor, and the tests start thousands. From the fork on it is
the same program with a process, signals, memory and files of its own. Tools that measure a start do not use this.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_MODULES: Final = "tests.support.nursery_modules"
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([_MODULES])


class Forked:
    """Of subprocess.Popen what a Router needs."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], cwd: Path, log: Path, errors: Path | None = None
    ) -> None:
        """`argv`: what follows `dlx-router`. What it prints is added to the log; its errors to `errors`, if given."""
        make: Any = _context.Process
        given = (argv, dict(env), str(cwd), str(log), str(errors or log))
        self._process = make(target=_grown_up, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid)

    def poll(self) -> int | None:
        """Its exit code, -N after signal N; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it is gone, or TimeoutExpired."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("dlx-router", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing where it is gone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _grown_up(argv: list[str], env: dict[str, str], cwd: str, log: str, errors: str) -> None:
    """In the new process: what exec would have done, then the command line."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    added = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for target, file, flags in ((0, os.devnull, os.O_RDONLY), (1, log, added), (2, errors, added)):
        os.dup2(os.open(file, flags, 0o644), target)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # as PYTHONUNBUFFERED would have it
    sys.argv = ["dlx-router", *argv]
    from dlx_router.cli.main import main  # noqa: PLC0415 - in the process of the tests it is not wanted

    main()
