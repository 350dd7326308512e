"""A router as its user starts it, with one file of policies and default settings, for what measures one alone."""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.bench.contestants import Place, Process, await_ready, installed_router
from tools.brokers import running
from tools.brokers.node import free_port


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What such a tool is told: `about` is its own docstring, and it adds what is its own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="4.3", help="of RabbitMQ (4.3)")
    parser.add_argument("--router", metavar="COMMAND", help="another dlx-router than the one beside this Python")
    return parser


@contextmanager
def one_router(
    given: argparse.Namespace, policies: str, config: Mapping[str, str] | None = None
) -> Iterator[tuple[Place, Process]]:
    """A private broker and a router that is ready, as `arguments` says; both are gone after the block."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-") as folder, running(given.version, config=config) as node:
        (Path(folder) / "policies.yaml").write_text(policies, encoding="utf-8")
        url, argv = node.amqp_url, installed_router(given.router)
        environment = {"DLX_ROUTER_AMQP_URL": url, "DLX_ROUTER_HTTP_PORT": str(free_port())}
        place = Place(url, url, node.management_url, 0, Path(folder), argv)
        router = Process("router", place, (*argv, "run", "--policies", folder), environment)
        router.start()
        try:
            await_ready(router)
            yield place, router
        finally:
            router.stop()
