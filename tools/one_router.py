"""A router as its user starts it, with one file of policies and default settings, for what measures one alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_contestants import Place, Process, await_ready, installed_router
from broker_node import free_port


@contextmanager
def one_router(url: str, folder: str, policies: str, command: str | None = None) -> Iterator[Process]:
    """Ready as the block begins, gone after it. `command`: another dlx-router than the one beside this Python."""
    (Path(folder) / "policies.yaml").write_text(policies, encoding="utf-8")
    argv = installed_router(command)
    place = Place(url, url, "", 0, Path(folder), argv)
    environment = {"DLX_ROUTER_AMQP_URL": url, "DLX_ROUTER_HTTP_PORT": str(free_port())}
    router = Process("router", place, (*argv, "run", "--policies", folder), environment)
    router.start()
    try:
        await_ready(router)
        yield router
    finally:
        router.stop()
