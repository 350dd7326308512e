"""Real, private RabbitMQ nodes for tests, demos and benchmarks. Standard library only.

    with running("4.3") as node:                      # 3.10, 4.0 or 4.3; side by side if you like
        node.amqp_url, node.management_url, node.version, node.rabbitmqctl("list_queues")
        node.stop(); node.start()                     # same data, same ports
        node.kill()                                   # SIGKILL

    with chosen() as node: ...                        # the one broker a newcomer has, see `chosen`

On the command line: python -m tools.brokers fetch [VERSION ...] | start VERSION | status
"""

import argparse
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tools.brokers.elsewhere import ContainerNode, GivenNode, docker_answers
from tools.brokers.node import PLUGINS, Node, free_port
from tools.brokers.programs import (
    RELEASES,
    BrokerError,
    BrokerMissingError,
    Program,
    install,
    installed,
    present,
    provide,
)

__all__ = [
    "ANY",
    "PLUGINS",
    "RELEASES",
    "Broker",
    "BrokerError",
    "BrokerMissingError",
    "Node",
    "chosen",
    "fetch",
    "free_port",
    "running",
    "started",
]


ANY: Final = "any"


class Broker(Protocol):
    """What every broker here can do. `managed` False: somebody else's; no stop, no kill, no rabbitmqctl."""

    @property
    def managed(self) -> bool: ...
    @property
    def version(self) -> str: ...
    @property
    def amqp_url(self) -> str: ...
    @property
    def amqp_base(self) -> str: ...
    @property
    def management_url(self) -> str: ...

    def rabbitmqctl(self, *args: str) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


@contextmanager
def running(
    version: str,
    *,
    plugins: tuple[str, ...] = PLUGINS,
    config: Mapping[str, str] | None = None,
    tls: tuple[Path, Path, Path] | None = None,
) -> Iterator[Node]:
    """A private node of this version while the block lasts, fetched first if need be; nothing of it is left.

    `config`: lines of rabbitmq.conf that win over ours. `tls`: CA, certificate and key files; adds `node.amqps_url`.
    """
    node = Node(provide(version), plugins=plugins, config=config, tls=tls)
    try:
        yield node
    finally:
        node.close()


@contextmanager
def chosen() -> Iterator[Broker]:
    """The one broker that is easiest to have here.

    In this order: the one named by DLX_ROUTER_TEST_AMQP_URL; a private node of the installed rabbitmq-server; on Debian
    as root the same, installed first; a container; else BrokerMissingError says what to install.
    """
    broker = _choose()
    try:
        yield broker
    finally:
        broker.close()


def started(version: str) -> AbstractContextManager[Broker]:
    """`running(version)`, or `chosen()` for "any"."""
    return chosen() if version == ANY else running(version)


def fetch(versions: list[str]) -> None:
    """Every one of these versions is here, fetched only where it was missing. `any`: what `chosen` would install."""
    for version in versions:
        if version == ANY:
            _install_chosen()
            continue
        program = provide(version)
        print(f"RabbitMQ {program.version}: {program.root or program.sbin}")


def _choose() -> Broker:
    if url := os.environ.get("DLX_ROUTER_TEST_AMQP_URL"):
        return GivenNode(url, os.environ.get("DLX_ROUTER_TEST_MANAGEMENT_URL"))
    if program := _install_chosen():
        return Node(program)
    if docker_answers():
        return ContainerNode("4.3")
    message = (
        "no RabbitMQ for the tests. Any of these will do: install the package rabbitmq-server; start Docker; "
        "or set DLX_ROUTER_TEST_AMQP_URL=amqp://guest:guest@localhost:5672/ (tests make and remove vhosts there)"
    )
    raise BrokerMissingError(message)


def _install_chosen() -> Program | None:
    if os.environ.get("DLX_ROUTER_TEST_AMQP_URL"):
        return None
    if not installed() and os.geteuid() == 0 and shutil.which("apt-get"):
        print("Installing the package rabbitmq-server (no service is started) ...", flush=True)
        install("rabbitmq-server")
    return installed()


def _status() -> None:
    for version, release in RELEASES.items():
        program = present(version)
        where = f"{program.version} in {program.root or program.sbin}" if program else "not here; `fetch` gets it"
        print(f"{version:5} (Debian {release}): {where}")


def _start(version: str) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with running(version) as node:
        print(f"RabbitMQ {node.version}\nAMQP        {node.amqp_url}\nmanagement  {node.management_url}", flush=True)
        print("Ctrl-C ends it and removes its data.", flush=True)
        while node.running and not ended.wait(0.5):
            pass


def main(argv: list[str] | None = None) -> int:
    """0 done · 1 a broker cannot be had · 2 wrong use."""
    parser = argparse.ArgumentParser(description="Private RabbitMQ nodes for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    versions = commands.add_parser("fetch", help="have these versions here (all by default)")
    versions.add_argument("versions", nargs="*", metavar="VERSION", help=f"{', '.join(RELEASES)} or {ANY}")
    commands.add_parser("start", help="run one in the foreground").add_argument("version", choices=list(RELEASES))
    commands.add_parser("status", help="what is here")
    given = parser.parse_args(argv)
    try:
        match given.command:
            case "fetch":
                fetch(given.versions or list(RELEASES))
            case "start":
                _start(given.version)
            case _:
                _status()
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
