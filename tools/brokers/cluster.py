"""A private cluster of RabbitMQ nodes on loopback, each a process that can be killed and started by itself."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Final

from tools.brokers.node import PRIVATE_MOUNTS, Node, free_port
from tools.brokers.programs import BrokerError, Program

_JOIN_S: Final = 300
_EPMD_S: Final = 60


class Cluster:
    """`size` nodes, joined when this returns; `close` leaves nothing behind."""

    def __init__(self, program: Program, size: int = 3, *, config: Mapping[str, str] | None = None) -> None:
        """`config`: lines of rabbitmq.conf, on each node."""
        self.nodes: list[Node] = []
        self._port = free_port()
        self._epmd = _epmd(program, self._port)
        fellows = (self._port, secrets.token_hex(16))
        try:
            for _ in range(size):
                self.nodes.append(Node(program, config=config, fellows=fellows))
            for node in self.nodes[1:]:
                self._join(node)
        except BaseException:
            self.close()
            raise

    def named(self, name: str) -> Node:
        """The node that the broker calls so."""
        return next(node for node in self.nodes if name_of(node) == name)

    def close(self) -> None:
        """Every node killed, their data removed."""
        for node in self.nodes:
            node.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._epmd.pid, signal.SIGKILL)
        self._epmd.wait()

    def _join(self, node: Node) -> None:
        for words in (("stop_app",), ("reset",), ("join_cluster", name_of(self.nodes[0])), ("start_app",)):
            node.rabbitmqctl(*words)
        deadline = time.monotonic() + _JOIN_S
        while name_of(node) not in self.nodes[0].rabbitmqctl("cluster_status"):
            if time.monotonic() > deadline:
                message = f"{name_of(node)} did not join the cluster"
                raise BrokerError(message)
            time.sleep(0.2)


def name_of(node: Node) -> str:
    """What the broker calls this node."""
    return f"n{node.ports['amqp']}@localhost"


def _epmd(program: Program, port: int) -> subprocess.Popen[bytes]:
    """The names of the nodes outlive each of them: an epmd that belongs to no node, and dies with its owner."""
    argv = ["epmd", "-port", str(port), "-address", "127.0.0.1"]
    if program.root:
        argv = [*PRIVATE_MOUNTS, "chroot", str(program.root), *argv]
    quiet = subprocess.DEVNULL
    argv = ["setpriv", "--pdeathsig", "KILL", *argv]
    process = subprocess.Popen(argv, stdout=quiet, stderr=quiet, start_new_session=True)
    deadline = time.monotonic() + _EPMD_S
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            message = "epmd did not start"
            raise BrokerError(message)
        time.sleep(0.05)
    return process


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
