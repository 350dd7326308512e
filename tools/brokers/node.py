"""A private, throw-away RabbitMQ node: real, on loopback only, gone without a trace.

How nothing is left behind, whatever happens to its owner:

* A program under another root runs in a mount namespace of its own: its mounts end with its last process.
* The node and its private epmd are one process group, listed in `groups` in the work folder.
* A reaper, a shell in its own session, reads a pipe that only the owner holds. Closed without a farewell (SIGKILL,
  SIGTERM, a crash), it kills the group and removes the folder.
* `lock` in the work folder is held by owner and reaper. Who can take it has found what a dead machine left: `sweep`.
"""

import contextlib
import fcntl
import os
import random
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final
from urllib.request import urlopen

from tools.brokers.node_files import MARK, Certificates, environment, write, write_cookie
from tools.brokers.programs import BrokerError, Program

PLUGINS: Final = ("rabbitmq_management", "rabbitmq_shovel")
START_S: Final = 180
STOP_S: Final = 60
CONTROL_S: Final = 300
PRIVATE_MOUNTS: Final = ("unshare", "--mount", "--propagation", "private")
_HERE: Final = "/mnt"  # where a program under another root sees its work folder

_SERVER: Final = """
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 </dev/null >/dev/null 2>&1 &
until epmd -names >/dev/null 2>&1; do sleep 0.05; done
exec "$1/rabbitmq-server"
"""
_OTHER_ROOT: Final = """
root=$1 work=$2; shift 2
mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" && mount --bind "$work" "$root/mnt" || exit 71
[ -e "$root/etc/hosts" ] || : > "$root/etc/hosts"
mount --bind "$work/hosts" "$root/etc/hosts" || exit 71
exec chroot "$root" "$@"
"""
_REAPER: Final = """
read -r farewell && exit 0
while read -r group; do kill -KILL -"$group" 2>/dev/null; done < "$1/groups"
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" && exit 0; sleep 0.2; done
"""
_taken: dict[int, int] = {}  # port → what holds its name
_taking = threading.Lock()


class Node:
    """One node, started on construction and ready to serve; `close` leaves nothing behind. User guest, vhost /."""

    managed: Final = True

    def __init__(
        self,
        program: Program,
        *,
        plugins: tuple[str, ...] = PLUGINS,
        config: Mapping[str, str] | None = None,
        tls: Certificates | None = None,
        fellows: tuple[int, str] | None = None,
    ) -> None:
        """`config` lines win over ours; `tls` is (CA, certificate, key) in PEM and adds a listener.

        `fellows`: port of the epmd and Erlang cookie of the nodes that it may form a cluster with.
        """
        sweep()
        self.program = program
        self.version = program.version
        self.ports = {name: free_port() for name in ("amqp", "amqps", "management", "dist", "epmd")}
        self._epmd, cookie = fellows or (self.ports["epmd"], secrets.token_hex(16))
        self.plugins = plugins
        self.work = Path(tempfile.mkdtemp(prefix="dlx-router-broker-"))
        self._lock = (self.work / "locking").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.work / "locking").rename(self.work / "lock")  # never there unlocked: sweep() looks for it
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper = _reaper(self.work, self._lock)
        try:
            settings = config or {}
            write(self.work, self._here, ports=self.ports, plugins=plugins, config=settings, tls=tls)
            write_cookie(self.work, cookie)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def amqp_url(self) -> str:
        """With user, password and the default vhost: append another vhost's name to `amqp_base`."""
        return f"{self.amqp_base}/%2F"

    @property
    def amqp_base(self) -> str:
        """The URL without a vhost."""
        return f"amqp://guest:guest@127.0.0.1:{self.ports['amqp']}"

    @property
    def amqps_url(self) -> str:
        """Of the TLS listener, there only where `tls` was given."""
        return f"amqps://guest:guest@localhost:{self.ports['amqps']}/%2F"

    @property
    def management_url(self) -> str:
        """With user and password; there only with the plugin rabbitmq_management."""
        return f"http://guest:guest@127.0.0.1:{self.ports['management']}"

    @property
    def log(self) -> str:
        """Everything the node has printed."""
        return (self.work / "node.log").read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        """The node's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """The node serves AMQP (and its management API) when this returns; data of an earlier run is kept.

        One that was killed may hang at its next start without a word, once in many hundreds: it is started again.
        """
        if self.running:
            return
        try:
            self._started()
        except BrokerError:
            self._started()

    def _started(self) -> None:
        with (self.work / "node.log").open("ab") as log:
            earlier = log.tell()
            argv = self._argv("sh", "-c", _SERVER, "server", str(self.program.sbin))
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                argv, env=self._env, stdin=quiet, stdout=log, stderr=log, start_new_session=True
            )
        (self.work / "groups").write_text(f"{self._process.pid}\n", encoding="utf-8")
        deadline = time.monotonic() + START_S
        while not (self._has_booted(earlier) and self._serves()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.splitlines()[-25:])
                self.kill()
                message = f"RabbitMQ {self.version} did not start:\n{tail}"
                raise BrokerError(message)
            time.sleep(0.05)

    def stop(self) -> None:
        """Shut down in order; `start` finds the data again."""
        if self._process and self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as if the power went; `start` finds what had reached the disk."""
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            (self.work / "groups").write_text("", encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        """To all of the node's processes: SIGSTOP freezes it with its connections open, SIGCONT lets it go on."""
        if self._process:
            os.killpg(self._process.pid, number)

    def become(self, program: Program) -> None:
        """The next start runs this program on the data that is there: an upgrade. The node must be stopped."""
        if self.running:
            raise BrokerError("a node that runs cannot become another version")
        self.program, self.version = program, program.version

    def rabbitmqctl(self, *args: str) -> str:
        """What `rabbitmqctl -q ARGS` prints; BrokerError with its output if it fails."""
        argv = self._argv(str(self.program.sbin / "rabbitmqctl"), "-q", *args)
        try:
            done = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=CONTROL_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"rabbitmqctl {' '.join(args)} did not end within {CONTROL_S} s") from error
        if done.returncode:
            message = f"rabbitmqctl {' '.join(args)} failed ({done.returncode}): {done.stdout}{done.stderr}"
            raise BrokerError(message)
        return done.stdout

    def write_rabbitmqctl(self, path: Path) -> None:
        """Write a program that is `rabbitmqctl` of this node, for shells."""
        settings = shlex.join(f"{name}={value}" for name, value in self._env.items())
        argv = shlex.join(self._argv(str(self.program.sbin / "rabbitmqctl"), "-q"))
        path.write_text(f'#!/bin/sh\nexec env {settings} {argv} "$@"\n', encoding="utf-8")
        path.chmod(0o755)

    def close(self) -> None:
        """Kill the node and remove its data; safe to repeat."""
        self.kill()
        if self._reaper.poll() is None and self._reaper.stdin and not self._reaper.stdin.closed:
            shutil.rmtree(self.work, ignore_errors=True)
            self._reaper.communicate(b"farewell\n")
        self._lock.close()
        for port in self.ports.values():
            _give_back(port)

    def _argv(self, *argv: str) -> list[str]:
        root = self.program.root
        if root is None:
            return list(argv)
        return [*PRIVATE_MOUNTS, "sh", "-c", _OTHER_ROOT, "root", str(root), str(self.work), *argv]

    @property
    def _env(self) -> dict[str, str]:
        return environment(self.work, self._here, {**self.ports, "epmd": self._epmd})

    @property
    def _here(self) -> str:
        return _HERE if self.program.root else str(self.work)

    def _has_booted(self, earlier: int) -> bool:
        with (self.work / "node.log").open("rb") as log:
            log.seek(earlier)
            return b"Server startup complete" in log.read()

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports["amqp"]), timeout=5) as link:
                link.sendall(b"AMQP\0\0\x09\x01")
                if link.recv(1) != b"\x01":  # a method frame: connection.start
                    return False
            if "rabbitmq_management" in self.plugins:
                urlopen(f"http://127.0.0.1:{self.ports['management']}/", timeout=5).close()
        except OSError:
            return False
        return True


def sweep() -> None:
    """Remove what nodes left behind whose owner and reaper both died (a machine switched off, a container killed)."""
    for work in Path(tempfile.gettempdir()).glob("dlx-router-broker-*"):
        with contextlib.suppress(OSError), (work / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _kill_marked(work)
            shutil.rmtree(work, ignore_errors=True)


def free_port() -> int:
    """A loopback port that nobody listens on and nobody else was given; below the ephemeral range.

    Other processes that run these tools hold theirs too, from here until they end or close the node.
    """
    with _taking:
        while True:
            port = random.randrange(20_000, 32_000)
            if port not in _taken and (claim := _claimed(port)):
                _taken[port] = claim.detach()
                return port


def _claimed(port: int) -> socket.socket | None:
    """What holds the port's name for this process, until it is closed; None: somebody has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        if sys.platform == "linux":  # elsewhere no name ends with its process
            claim.bind(f"\0dlx-router-port-{port}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return claim
    except OSError:
        pass
    claim.close()
    return None


def _give_back(port: int) -> None:
    with _taking:
        if (claim := _taken.pop(port, None)) is not None:
            os.close(claim)


def _kill_marked(work: Path) -> None:
    mark = f"{MARK}={work}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def _reaper(work: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    argv = ["sh", "-c", _REAPER, "reaper", str(work)]
    pipe, quiet, kept = subprocess.PIPE, subprocess.DEVNULL, (lock.fileno(),)
    return subprocess.Popen(argv, stdin=pipe, stderr=quiet, pass_fds=kept, start_new_session=True)
