"""Fixtures: `broker` (a real RabbitMQ of each version asked for), `vhost` (one test's), `amqp` and `start_router`.

DLX_ROUTER_TEST_BROKERS=3.10,4.0,4.3 runs every test that needs a broker on each; without it on the one that is easiest
to have (tools/brokers says which). A broker that cannot be had skips its tests, and fails them in CI or when it was
named; one that does not start fails them always.
"""

import itertools
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import pytest
from hypothesis import settings

from tests.support.client import Client
from tests.support.router import Router
from tests.support.thoroughness import NIGHT, THOROUGH
from tests.support.version_draw import SEED, versions
from tests.support.vhost import Vhost
from tools import brokers

NAMED: Final = [name.strip() for name in os.environ.get("DLX_ROUTER_TEST_BROKERS", "").split(",") if name.strip()]
MUST: Final = bool(NAMED) or os.environ.get("CI") == "true"
Router.forks = True
settings.register_profile("no deadline", deadline=None)  # how long an example takes says what else the machine does
settings.load_profile("no deadline")
_ANALYSES: Final = ("tests/spark/analyses/", "tests/spark/advice/")
ROUTERS: Final = pytest.StashKey[list[Router]]()

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=NAMED or [brokers.ANY])
def broker(request: pytest.FixtureRequest) -> Iterator[brokers.Broker]:
    """A broker shared by the whole run. Do not stop it: see `own_broker`."""
    with ExitStack() as stack:
        try:
            one = stack.enter_context(brokers.started(request.param))
        except brokers.BrokerMissingError as error:
            pytest.fail(str(error)) if MUST else pytest.skip(str(error))
        yield one


@pytest.fixture
def newest() -> None:
    """For tests whose outcome does not depend on the broker's version: of several, they run on the last one only.

    They are skipped as they are collected: by a fixture they would be only after nodes and routers had begun for them.
    """


@pytest.fixture
def own_broker(broker: brokers.Broker) -> Iterator[brokers.Node]:
    """A private node of the same program for a test that stops, kills or fills it (some 4 s)."""
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be started twice")
    node = brokers.Node(broker.program)
    yield node
    node.close()


@pytest.fixture
def vhost(broker: brokers.Broker, request: pytest.FixtureRequest) -> Iterator[Vhost]:
    """A fresh vhost, removed after the test."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    one = Vhost.make(broker, f"t{next(_numbers)}-{os.getpid()}-{plain}")
    yield one
    one.close()


@pytest.fixture
def amqp(vhost: Vhost) -> Iterator[Client]:
    """A plain client in the test's vhost."""
    with Client(vhost.amqp_url) as client:
        yield client


@pytest.fixture
def start_router(vhost: Vhost, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Router]]:
    """start_router(policies, *args, wait=True, **env) → a ready router on the test's vhost.

    `policies`: file name → YAML, or YAML of one file, or a folder. `env`: settings without the prefix, PREFIX="x" say.
    """
    routers: list[Router] = request.node.stash.setdefault(ROUTERS, [])

    def start(policies: Mapping[str, str] | str | Path, *args: str, wait: bool = True, **env: str) -> Router:
        folder = policies if isinstance(policies, Path) else _written(policies, tmp_path / f"policies-{len(routers)}")
        urls = {"amqp_url": vhost.amqp_url, "management_url": vhost.management_url}
        router = Router(**urls, policies=folder, log=tmp_path / f"router-{len(routers)}.log", env=env)
        routers.append(router)
        return router.start(*args, wait=wait)

    yield start
    for router in routers:
        router.close()


def _written(policies: Mapping[str, str] | str, folder: Path) -> Path:
    folder.mkdir()
    for name, text in ({"policies.yaml": policies} if isinstance(policies, str) else policies).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def pytest_itemcollected(item: pytest.Item) -> None:
    """What `make test` runs side by side: a file and a version of the broker stay together, and share its fixtures.

    All that ask the session of Spark are two such groups: a worker has one session, and Java begins once in each.
    """
    params, path = _params(item), item.nodeid.partition("::")[0]
    place = f"{params.get('broker', '')}:{path}"
    if _is_spark(item):
        place = "spark analyses" if path.startswith(_ANALYSES) else "spark"
    item.add_marker(pytest.mark.xdist_group(place))
    if _is_pure(item):
        item.add_marker(pytest.mark.pure)
    if "broker" in params and NAMED and (why := _not_here(item, str(params["broker"]))):
        item.add_marker(pytest.mark.skip(why))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which draw to ask for, to have the same again."""
    return f"versions of RabbitMQ are drawn by DLX_ROUTER_TEST_SEED={SEED}" if _draws(config) else None


def _draws(config: pytest.Config) -> bool:
    """Whether this is all that there is: whoever names a test or a folder means it on every version."""
    is_all = not config.getoption("keyword") and [*config.args] == [*config.getini("testpaths")]
    return is_all and len(NAMED) > 1 and THOROUGH < NIGHT


def _not_here(item: pytest.Item, version: str) -> str | None:
    """Why this test does not run on this version; None where it does."""
    if "newest" in getattr(item, "fixturenames", ()):
        return None if version == NAMED[-1] else f"the same on every version: runs on {NAMED[-1]}"
    if not _draws(item.config):
        return None
    slow = next(item.iter_markers("slow"), None) is not None
    drawn = versions(item.nodeid.replace(version, ""), NAMED, slow=slow, seed=SEED)
    return None if version in drawn else f"runs on {' and '.join(drawn)} this time, with THOROUGH={NIGHT} on all"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest group begins, else all other workers would wait for it at the end; the smallest ones come last.

    One version comes after the other: each start of a broker takes a worker some 5 s. Between tests that wait for it
    are those that wait for nothing, and have the processors meanwhile.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(next(item.iter_markers("xdist_group")).args[0], []).append(item)
    ordered = sorted(groups.values(), key=lambda group: (*_turn(group[0]), -sum(map(_runs, group))))
    alone = [group for group in ordered if _is_pure(group[0])]
    others = [group for group in ordered if not _is_pure(group[0])]
    placed = [(at / len(some), group) for some in (others, alone) for at, group in enumerate(some)]
    placed.sort(key=lambda one: one[0])
    items[:] = [item for _, group in placed for item in group]


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """Spark, then the newest broker, which has most to do, then those before it."""
    version = str(_params(item).get("broker"))
    return not _is_spark(item), -NAMED.index(version) if version in NAMED else 0


def _params(item: pytest.Item) -> Mapping[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _runs(item: pytest.Item) -> bool:
    return next(item.iter_markers("skip"), None) is None


def _is_pure(item: pytest.Item) -> bool:
    """It asks no broker."""
    return "broker" not in getattr(item, "fixturenames", ())


def _is_spark(item: pytest.Item) -> bool:
    """It asks the one session; those of tests/spark that do not may run beside it."""
    return "spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its routers printed and counted, and where its messages lie."""
    report = yield
    if report.failed:
        for router in item.stash.get(ROUTERS, []):
            report.sections.append((f"router {router.port}", router.output[-8000:]))
            report.sections.append((f"counters of router {router.port}", "\n".join(_counted(router))))
        if (vhost := getattr(item, "funcargs", {}).get("vhost")) is not None:
            report.sections.append((f"queues of {vhost.name}", "\n".join(_depths(vhost))))
    return report


def _counted(router: Router) -> list[str]:
    try:
        _, text = router.ask("/metrics")
    except RuntimeError as error:  # its module is over, and its client closed: the report is of a thread's error
        return [str(error)]
    return [
        line
        for line in text.splitlines()
        if line.startswith("dlx_router") and "_bucket{" not in line and not line.endswith(" 0.0")
    ]


def _depths(vhost: Vhost) -> list[str]:
    columns = "name,type,messages_ready,messages_unacknowledged"
    try:
        return [str(one) for one in vhost.get(f"queues/{vhost.quoted}?columns={columns}")]
    except httpx.HTTPError as error:  # its broker was stopped
        return [repr(error)]
