"""The archive tells what a router signed from what somebody else wrote: kept, marked and counted."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dlx_router.core.signature import HEADER, Signer
from dlx_router.service.vhost.signing_key import from_file
from dlx_router.spark import schemas
from dlx_router.spark.archive import reading
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.doctor import State, _key, _signed
from dlx_router.spark.options import OptionError, Options
from tests.core.core_samples import letter
from tests.journal.journal_samples import line
from tests.spark.conftest import Stream
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(b"k" * 32)
    return file


def put(stream: Stream, body: bytes, mac: bytes | None) -> None:
    headers: dict[str, Any] = {"v": 1} | ({} if mac is None else {HEADER: mac.decode()})
    stream.client.publish(body, key=stream.name, headers=headers, content_type="application/x-ndjson")


def test_events_are_marked_and_counted_by_signature(
    newest: brokers.Broker, spark: "SparkSession", tmp_path: Path, connection: str, stream: Stream, key_file: Path
) -> None:
    ours = Signer(from_file(key_file), stream.vhost.name, stream.name)
    elsewhere = Signer(from_file(key_file), stream.vhost.name, "another")
    other = Signer(b"o" * 32, stream.vhost.name, stream.name)
    bodies = [line(letter(id=f"{number:032x}"), size=number) for number in range(5)]
    put(stream, bodies[0], None)  # what has the id of a true one comes first, and does not count for it
    put(stream, bodies[0], ours.sign(bodies[0]))
    put(stream, bodies[1], None)
    put(stream, bodies[2], other.sign(bodies[2]))
    put(stream, bodies[3], elsewhere.sign(bodies[3]))
    put(stream, bodies[4], ours.sign(bodies[3]))
    root = tmp_path / "archive"
    ingest(spark, Ingest(root, connection, stream.name, source={"provenanceKeyFile": str(key_file)}))
    rows = reading.read(spark, root).select("digest.size", "signature").collect()
    by_size = {row["size"]: row["signature"] for row in rows}
    assert by_size == {0: "ok", 1: "none", 2: "unknown_key", 3: "bad", 4: "bad"}
    assert verify(root, deep=True).signatures == {"bad": 2, "none": 2, "ok": 1, "unknown_key": 1}
    check = _signed(root)
    assert (check.state, check.said) == (State.NOTE, "2 bad, 2 none, 1 ok, 1 unknown_key")


def test_without_a_key_nothing_is_verified_and_all_is_kept(
    newest: brokers.Broker, spark: "SparkSession", tmp_path: Path, connection: str, stream: Stream, key_file: Path
) -> None:
    body = line(size=1)
    put(stream, body, Signer(from_file(key_file), stream.vhost.name, stream.name).sign(body))
    put(stream, line(size=2), None)
    ingest(spark, Ingest(tmp_path / "archive", connection, stream.name))
    assert verify(tmp_path / "archive").signatures == {"none": 1, "unknown_key": 1}


def test_what_was_archived_before_counts_as_unsigned(spark: "SparkSession", tmp_path: Path) -> None:
    from dlx_router.spark.archive.verify import _signatures  # noqa: PLC0415 - beside what it is compared with

    old = spark.createDataFrame([(1,), (2,)], "digest long")
    old.coalesce(1).write.parquet(str(tmp_path / "old"))
    (file,) = (tmp_path / "old").glob("*.parquet")
    assert _signatures(file) == {"none": 2}
    assert Archive(tmp_path / "nothing").parts() == []


@pytest.mark.parametrize("later", ["ok", "none"])
def test_an_event_of_nobodys_never_stands_for_a_signed_one(spark: "SparkSession", later: str) -> None:
    def of(signature: str | None) -> Any:
        row = dict.fromkeys(schemas.ARCHIVE.names) | {"event_id": "e", "signature": signature}
        return spark.createDataFrame([tuple(row.values())], schemas.ARCHIVE)

    assert reading.unknown(of(later), of("none")).count() == (1 if later == "ok" else 0)
    assert reading.unknown(of(later), of("ok")).count() == 0
    assert reading.unknown(of(later), of(None)).count() == 0


def test_a_key_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"connection": "env:X", "streams": "s", "provenanceKeyFile": str(tmp_path / "none")}
    monkeypatch.setenv("X", "amqp://localhost")
    with pytest.raises(OptionError, match="provenanceKeyFile"):
        Options.read(given).signers()
    monkeypatch.delenv("DLX_ROUTER_PROVENANCE_KEY_FILE", raising=False)
    assert _key().state is State.NOTE
