"""The images, built once in a run, and `start`: a container of the router beside the broker, on loopback as that is.

All of it runs by podman where one is root on Debian (tools/containers), elsewhere by Docker. Without either the tests
are skipped, and fail in CI.
"""

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import MUST
from tests.image.container import HARDENED, Container
from tests.support.vhost import Vhost
from tools import brokers
from tools.brokers.programs import cache
from tools.containers import stand_ins
from tools.containers.engine import Engine, EngineMissingError
from tools.containers.engine import engine as found_engine

ROOT: Final = Path(__file__).parents[2]
ROUTER: Final = "localhost/dlx-router:test"
PIPELINE: Final = "localhost/dlx-router-pipeline:test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is for `make test-image`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.image)
            item.add_marker(pytest.mark.timeout(1300))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One run at a time has it: names of containers and published ports are the machine's."""
    folder = cache().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "containers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        chosen = _engine()
        chosen.sweep()
        yield chosen
        chosen.sweep()


def _engine() -> Engine:
    try:
        chosen = found_engine()
        stand_ins.provide(chosen, stand_ins.PYTHON)
    except (EngineMissingError, brokers.BrokerMissingError) as error:
        pytest.fail(str(error)) if MUST else pytest.skip(str(error))
    return chosen


@pytest.fixture(scope="session")
def router_image(engine: Engine) -> str:
    """Built from the tree as it is."""
    engine.build(ROOT, tag=ROUTER, target="router")
    return ROUTER


@pytest.fixture(scope="session")
def pipeline_image(engine: Engine, router_image: str) -> str:
    """Built after the other, whose stages it shares."""
    engine.build(ROOT, tag=PIPELINE, target="pipeline")
    return PIPELINE


@pytest.fixture
def start(engine: Engine, router_image: str, vhost: Vhost, tmp_path: Path) -> Iterator[Callable[..., Container]]:
    """start(policies, *options, **settings) → a router that may do nothing but its work, ready unless `wait=False`."""
    started: list[Container] = []

    def begin(policies: str, *options: str, wait: bool = True, **settings: str) -> Container:
        folder = tmp_path / f"policies-{len(started)}"
        folder.mkdir()
        (folder / "policies.yaml").write_text(policies, encoding="utf-8")
        router = Container(engine, router_image, f"dlx-router-test-{len(started)}")
        started.append(router)
        urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
        mounted = ["--volume", f"{folder}:/policies:ro"]
        router.start(*HARDENED, *mounted, *options, settings={**urls, **settings})
        if wait:
            router.await_ready()
        return router

    yield begin
    for router in started:
        router.close()
