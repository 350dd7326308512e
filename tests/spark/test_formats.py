"""The archive reads both formats of the journal, mixed in one stream; what it cannot unpack is kept, and why."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from dlx_router.core.signature import HEADER, Signer
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import fragments
from dlx_router.journal.fields import LINES, ROWS
from dlx_router.journal.packing import MAGIC
from dlx_router.service.vhost.signing_key import from_file
from dlx_router.spark import bundle, schemas
from dlx_router.spark.archive import reading
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING, props
from tests.journal.old_journal import events, old
from tests.spark.conftest import Stream
from tests.spark.rows import rows
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def body(message_format: int, *numbers: int) -> bytes:
    """A message of these letters."""
    batch = Batch(1)
    batch.tells_tasks = message_format == LINES
    for number in numbers:
        shared = fragments(letter(), RULING)
        at: dict[str, Any] = {"first_ms": NOW, "last_ms": NOW, "crc32": 7, "size": number}
        at |= {"props": props(message_id=b"m-%d" % number, content_type=b"text/plain"), "due_ms": NOW + 5000}
        at |= {"draw": 0.25, "extra": '"error":{"type":"T"},"body_mode":"hash","body_sha256":"00"'}
        batch.add(shared.entry(f"{number:032x}", NOW + 1, **at))
    batch.close()
    return batch.body


def put(stream: Stream, message: bytes, version: int, signer: Signer) -> None:
    how: dict[str, Any] = {"content_encoding": "zstd"} if version == ROWS else {}
    headers = {"v": version, HEADER: signer.sign(message).decode()}
    stream.client.publish(message, key=stream.name, headers=headers, content_type="application/x-ndjson", **how)


def test_workers_that_are_shipped_the_package_read_both_formats(tmp_path: Path) -> None:
    """From a zip there are no files beside the code. Without zstandard they say what to install, and read format 1."""
    bundle.write(tmp_path / "dlx_router.zip")
    program = (
        "import sys; from dlx_router.journal import reading; assert 'dlx_router.zip' in reading.__file__\n"
        "for body in sys.argv[1:]: print(len(reading.lines(bytes.fromhex(body))))"
    )
    bodies = [body(LINES, 1, 2).hex(), body(ROWS, 3).hex()]
    blocked = f"import sys; sys.modules['zstandard'] = None\n{program}"
    for code, printed, why in ((program, "2\n1\n", ""), (blocked, "2\n", "package zstandard is not here: install it")):
        done = subprocess.run(
            [sys.executable, "-c", code, *bodies], env={"PYTHONPATH": str(tmp_path / "dlx_router.zip")},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, why in done.stderr) == (printed, True), done.stderr


def test_both_formats_make_the_same_rows_and_what_is_broken_is_kept(
    newest: brokers.Broker, spark: "SparkSession", tmp_path: Path, connection: str, stream: Stream
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"k" * 32)
    signer = Signer(from_file(key_file), stream.vhost.name, stream.name)
    broken = MAGIC + b"\n\xff\n"
    put(stream, body(LINES, 1, 2), LINES, signer)
    put(stream, body(ROWS, 3, 4, 5), ROWS, signer)
    put(stream, broken, ROWS, signer)
    put(stream, b"of a later version", 3, signer)
    put(stream, body(ROWS, 6), ROWS, signer)
    root = tmp_path / "archive"
    ingest(spark, Ingest(root, connection, stream.name, source={"provenanceKeyFile": str(key_file)}))
    events = reading.read(spark, root).orderBy("digest.size").collect()
    assert [row["digest"]["size"] for row in events] == [1, 2, 3, 4, 5, 6]
    records = [{name: row[name] for name in schemas.EVENT.names} for row in events]
    for record, number in zip(records, range(1, 7), strict=True):
        assert (record.pop("id"), record.pop("digest")["size"]) == (f"{number:032x}", number)
        assert record.pop("props")["message_id"] == f"m-{number}"
        assert record.pop("event_id").startswith(f"{number:032x}-")
    assert all(record == records[0] for record in records)
    assert {row["signature"] for row in events} == {"ok"}
    assert all(row["line"] is None for row in events), "the columns hold all of it"
    report = verify(root, deep=True)
    assert (report.events, report.bad, report.findings) == (6, 2, ())
    (entry,) = Archive(root).entries()
    bad = pq.read_table(Archive(root).bad(entry.seg)).sort_by("offset").to_pylist()
    assert [row["reason"].partition(": ")[2].partition(":")[0] for row in bad] == [
        "no whole zstd frame",
        "format 3; 1 and 2 are known",
    ]
    assert [row["line"] for row in bad] == [broken, b"of a later version"]
    assert (records[0]["error"]["type"], records[0]["draw"], records[0]["due_ms"]) == ("T", 0.25, NOW + 5000)


def test_the_journal_of_a_router_of_before_becomes_rows() -> None:
    """Of version 0.1.0, as it lay in its stream."""
    parsed = rows(*(body for _, body in old().messages))
    expected = events()
    assert [row["event_id"] for row in parsed] == [event["event_id"] for event in expected]
    assert all("event_id" in row for row in parsed), "none is a bad line"
    dead = Counter(row["failed_queue"] for row in parsed if row["arrival"] == "inbox" and row["redrive_id"] is None)
    assert {queue: dead[queue] for queue in old().deaths} == old().deaths
    for row, event in zip(parsed, expected, strict=True):
        plain = {name: value for name, value in event.items() if isinstance(value, str | int | float)}
        assert {name: row[name] for name in plain} == plain
