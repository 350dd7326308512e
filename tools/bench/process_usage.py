"""CPU and memory of processes, read from /proc."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final


class Usage:
    """CPU seconds and peak memory from /proc: of one process, or of all that live in its session."""

    _TICK: Final = os.sysconf("SC_CLK_TCK")
    _LOOK_AGAIN_S: Final = 0.5

    def __init__(self, pid: int, *, session: bool) -> None:
        """`session`: what it starts is found within half a second; of what has ended, what its parent knows."""
        self._pid = pid
        self._session = session
        self._pids = [pid]
        self._looked_s = 0.0
        self._peaks: dict[int, int] = {}

    def cpu_s(self) -> float:
        """User and system time so far."""
        ticks = 0
        for pid in self._members():
            fields = _stat(pid)
            ticks += sum(int(value) for value in fields[11 : 15 if self._session else 13])
            self._peaks[pid] = max(self._peaks.get(pid, 0), _peak_kib(pid))
        return ticks / self._TICK

    @property
    def peak_mb(self) -> float:
        """Sum of the peaks of every process seen (VmHWM), in 10^6 bytes."""
        return sum(self._peaks.values()) * 1024 / 1e6

    def _members(self) -> list[int]:
        if self._session and time.monotonic() - self._looked_s > self._LOOK_AGAIN_S:
            self._pids = [pid for pid in _all_pids() if _in_session(pid, self._pid)]
            self._looked_s = time.monotonic()
        return self._pids


def _all_pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; zeros if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _in_session(pid: int, session: int) -> bool:
    return _stat(pid)[3] == str(session)


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
