"""`spark`: one session for the whole run. `events`: a small week whose truth is known.

`stream`: a journal in the test's vhost, written by a plain client.

Skipped where pyspark or Java is absent, but not in CI. What does not depend on RabbitMQ's version runs on the newest.
"""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.journal.rows_of import rows_of
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools import brokers
from tools.pipeline import week

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MUST = os.environ.get("CI") == "true"  # `make spark` brings it
NAME = "dlx-router.journal"
CONNECTION = "env:DLX_ROUTER_TEST_STREAM_URL"
LETTERS = 1200
SMALL = {  # to compile code for a thousand rows takes longer than to go through them
    "spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.adaptive.enabled": "false", "spark.log.level": "ERROR",
}  # fmt: skip
JVM = "-XX:ReservedCodeCacheSize=240m"


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
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """The marker, more time where a test or its file does not say how much, and no end by a warning of Spark's own.

    A timeout ends the process, and xdist starts another one: an exception in the middle of an answer of the JVM would
    leave the session of all later tests with answers to questions that they did not ask.
    """
    item.add_marker(pytest.mark.spark)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(900, method="thread"))
    item.add_marker(pytest.mark.filterwarnings("default::DeprecationWarning", "ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Local, small, in UTC. No other fixture makes one: what it holds would outlive the session, which all share."""
    if why := _missing():
        pytest.fail(why) if MUST else pytest.skip(why)
    from dlx_router.spark import session  # noqa: PLC0415 - as above

    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():  # commands that tests call set them once more
            patch.setitem(session.ALWAYS, name, value)
        patch.setenv("JDK_JAVA_OPTIONS", JVM)
        made = session.build_session("dlx-router tests", master="local[2,4]")
        yield made
        made.stop()


@pytest.fixture(scope="session")
def truth() -> week.Truth:
    """What happened in a small week."""
    return week.week(LETTERS, seed=11)


@pytest.fixture(scope="session")
def lines(truth: week.Truth) -> list[dict[str, Any]]:
    """The journal of the week, read without Spark."""
    return [json.loads(line) for line in truth.journal()]


@pytest.fixture(scope="session")
def events(spark: "SparkSession", truth: week.Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator["DataFrame"]:
    """The week in the archive's columns, told in both formats."""
    from tests.spark.rows import archived, mixed  # noqa: PLC0415 - pyspark may be missing

    frame = archived(spark, mixed([*truth.journal()]), tmp_path_factory.mktemp("week") / "week.ndjson").cache()
    yield frame
    frame.unpersist()


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
