"""Connections that break while Spark reads, TLS, and a broker that is away for a while."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dlx_router.broker.address import Tls
from dlx_router.cli.pipeline.names import tls_options
from dlx_router.spark.amqp import Connection, StreamError
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.doctor import State, _broker
from dlx_router.wire.address import parse
from tests.journal.journal_samples import line
from tests.spark.conftest import Stream
from tests.spark.test_command import pipeline
from tests.support.certificates import Authority
from tests.support.client import Client
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.parametrize("by_spark", [True, False])
def test_connections_that_are_closed_while_they_read_cost_nothing(
    newest: brokers.Broker,
    spark: "SparkSession",
    stream: Stream,
    connection: str,
    tmp_path: Path,
    by_spark: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    for start in range(0, 6000, 10):
        stream.put(*(line(size=number) for number in range(start, start + 10)))
    over = threading.Event()
    closed: list[str] = []

    def close_all() -> None:
        while not over.wait(0.5) and len(closed) < 6:
            for client in stream.vhost.get(f"vhosts/{stream.vhost.quoted}/connections"):
                if (client.get("client_properties") or {}).get("connection_name") == "dlx-router pipeline":
                    stream.vhost.api.delete(f"connections/{client['name']}")
                    closed.append(client["name"])

    closer = threading.Thread(target=close_all)
    closer.start()
    try:
        by = spark if by_spark else None
        done = ingest(by, Ingest(tmp_path / "archive", connection, stream.name, source={"prefetch": "1"}))
    finally:
        over.set()
        closer.join()
    assert done.events == sum(part.rows for part in Archive(tmp_path / "archive").parts()) == 6000


@pytest.mark.usefixtures("newest")
def test_tls_is_verified_and_a_wrong_name_is_refused(broker: brokers.Broker, tmp_path: Path) -> None:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given has its own certificates")
    authority = Authority(tmp_path / "ca", "test")
    pair = authority.issue("localhost")
    files = (authority.certificate, pair.certificate, pair.key)
    node = brokers.Node(broker.program, tls=files)
    try:
        with Client(node.amqp_url) as client:
            client.queue("s", "stream")
            client.publish("x", key="s")
        with Connection(parse(node.amqps_url), Tls(str(authority.certificate))) as link:
            assert link.probe("s").end == 1
        with pytest.raises(StreamError, match=r"certificate verify failed"):
            Connection(parse(node.amqps_url), Tls(str(authority.certificate), server_name="elsewhere"))
        with pytest.raises(StreamError, match=r"certificate verify failed"):
            Connection(parse(node.amqps_url))
        _is_reached_by_the_settings_of_the_router(node.amqps_url, str(authority.certificate), tmp_path / "archive")
    finally:
        node.close()


def _is_reached_by_the_settings_of_the_router(url: str, ca: str, archive: Path) -> None:
    """By ingest and by doctor."""
    settings = {"DLX_ROUTER_AMQP_URL": url, "DLX_ROUTER_TLS_CA": ca}
    done = pipeline("ingest", "--archive", str(archive), "--streams", "s", **settings)
    assert done.stdout.startswith("1 segment, 0 events, 1 line that is no event"), done.stderr
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        check = _broker("env:DLX_ROUTER_AMQP_URL", "s", tls_options())
    assert (check.state, check.said) == (State.OK, "s: offsets 0 to 1")
