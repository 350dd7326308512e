"""`spark`: one session for the whole run. `stream`: a journal in the test's vhost, written by a plain client.

Skipped where pyspark or Java is absent, but not in CI. What does not depend on RabbitMQ's version runs on the newest.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.journal.rows_of import rows_of
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MUST = os.environ.get("CI") == "true"  # `make spark` brings it
NAME = "dlx-router.journal"
CONNECTION = "env:DLX_ROUTER_TEST_STREAM_URL"
HERE = Path(__file__).parent


def _missing() -> str:
    if importlib.util.find_spec("pyspark") is None:
        return "no pyspark: make spark"
    from dlx_router.spark.java import JavaMissing, find_java  # noqa: PLC0415 - pyspark may be missing

    try:
        find_java()
    except JavaMissing as error:
        return str(error)
    return ""


if importlib.util.find_spec("pyspark") is None and not MUST:
    collect_ignore_glob = ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """The marker, more time where a test or its file does not say how much, and no end by a warning of Spark's own."""
    item.add_marker(pytest.mark.spark)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(900))
    item.add_marker(pytest.mark.filterwarnings("default::DeprecationWarning", "ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Local, small, in UTC."""
    if why := _missing():
        pytest.fail(why) if MUST else pytest.skip(why)
    from dlx_router.spark.session import build_session  # noqa: PLC0415 - as above

    conf = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
    session = build_session("dlx-router tests", master="local[2,4]", conf=conf)
    yield session
    session.stop()


@pytest.fixture
def newest(broker: brokers.Broker) -> brokers.Broker:
    """As for all tests, and the broker itself."""
    return broker


class Stream:
    """A stream of one test's own."""

    def __init__(self, client: Client, vhost: Vhost, name: str = NAME, **arguments: Any) -> None:
        self.client, self.vhost, self.name, self.arguments = client, vhost, name, arguments
        self.mixed, self.count = False, 0
        self.make()

    def make(self) -> None:
        """Declare it."""
        self.client.queue(self.name, "stream", **self.arguments)

    def remake(self) -> None:
        """Delete it and make it anew: offsets begin at 0 again."""
        self.client.channel.queue_delete(self.name)
        self.make()

    def put(self, *lines: bytes) -> None:
        """One message of these lines, confirmed; each second one in format 2 where the stream is `mixed`."""
        self.count += 1
        how: dict[str, Any] = {"headers": {"v": 1}}
        body = b"".join(lines)
        if self.mixed and self.count % 2:
            body, how = rows_of(body.splitlines()), {"headers": {"v": 2}, "content_encoding": "zstd"}
        self.client.publish(body, key=self.name, content_type="application/x-ndjson", **how)


@pytest.fixture
def make_stream(amqp: Client, vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stream]:
    """make_stream(name, max_age="1h") → a stream; CONNECTION names its broker and vhost."""
    monkeypatch.setenv(CONNECTION.partition(":")[2], vhost.amqp_url)
    return lambda name=NAME, **arguments: Stream(amqp, vhost, name, **arguments)


@pytest.fixture
def stream(make_stream: Callable[..., Stream]) -> Stream:
    """The journal."""
    return make_stream()


@pytest.fixture
def connection(vhost: Vhost, tmp_path: Path) -> str:
    """Where workers find the URL: a file, because their environment is older than the test's vhost."""
    file = tmp_path / "amqp-url"
    file.write_text(vhost.amqp_url, encoding="utf-8")
    file.chmod(0o600)
    return f"file:{file}"
