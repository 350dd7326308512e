"""Archives made without Spark and a broker: rows as plain values, in Parquet as ingest and compact write it."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.fingerprint import of_event
from dlx_router.spark import schemas
from dlx_router.spark.amqp import Message
from dlx_router.spark.archive.day_files import BAD as BAD_LINES
from dlx_router.spark.archive.layout import Archive, Day, Entry
from dlx_router.spark.archive.sink import segment
from dlx_router.spark.offsets import dated
from tests.spark.rows import written

COLUMNS: Final = to_arrow_schema(schemas.ARCHIVE, timezone="UTC")
STORED: Final = pa.schema([column for column in COLUMNS if column.name not in {"event_date", "seg"}])
BAD: Final = pa.schema([column for column in to_arrow_schema(schemas.BAD, timezone="UTC") if column.name != "seg"])
MONDAY_MS: Final = int(datetime(2026, 3, 9, tzinfo=UTC).timestamp() * 1000)
HOUR_MS: Final = 3_600_000
Row = dict[str, Any]


def event(name: str, hours: float = 0.0, **more: Any) -> Row:
    """A letter's event so many hours after Monday began; `name` is its id and, if none is given, its event's."""
    ts_ms = MONDAY_MS + int(hours * HOUR_MS)
    plain: Row = {
        "v": 1, "event_id": f"{name}-{ts_ms}", "id": name, "kind": "parked", "router_id": "r", "vhost": "/",
        "failed_queue": "orders", "reason": "rejected", "attempts": 1, "redrives": 0, "ts_ms": ts_ms,
        "first_death_ms": ts_ms, "signature": "ok", "fingerprint": "f1",
    }  # fmt: skip
    return plain | more


def row_of(line: bytes) -> Row:
    """An event of the journal, as it came, in the archive's columns."""
    row: Row = json.loads(line)
    for name in ("headers", "body_values", "details"):
        row[name] = list(row[name].items()) if row.get(name) else None
    if row.get("id"):
        group = of_event(row)
        row["fingerprint"], row["error_template"] = group.id, group.message
    return row | {"signature": "ok"}


class Written:
    """An archive that segments and compacted days are written into."""

    def __init__(self, root: Path, schema: pa.Schema = STORED) -> None:
        self.archive, self.schema = Archive(root), schema

    def put(self, *rows: Row, bad: Sequence[bytes] = (), int96: bool = True, is_end: bool = True) -> str:
        """A segment of these rows and of lines that are no events, as ingest leaves it; its name.

        `is_end`: that was all of the stream when it was read.
        """
        number = self.archive.next_number()
        seg, days = f"{number:010}-run", by_day(rows)
        for day, own in days.items():
            self._write(self.archive.raw(day, seg), [_full(row, number, at) for at, row in enumerate(own)], int96=int96)
        if bad:
            self._bad(seg, number, bad)
        before = self.archive.end().get("s", {})
        read = [before.get("complete_ms", 0), *(_ms(_full(row, number, 0)["ingest_ts"]) for row in rows)]
        at = dated(
            {"next": number + 1, "seen": number, "mark": "", "lost": 0},
            before,
            {number + 1: max(read)} if is_end else {},
        )
        start = {"next": number, "seen": number - 1, "mark": "", "lost": 0}
        counts = {day: len(own) for day, own in days.items()}
        self.archive.commit(Entry(number, seg, counts, len(bad), {"s": start}, {"s": at}, 0))
        return seg

    def ingest(self, every: Iterable[Message]) -> None:
        """A segment of these messages, by what ingest itself is made of; with its lines that are none."""
        number = self.archive.next_number()
        seg = f"{number:010}-run"
        counts = segment(self.archive, seg, written(every, self.archive.work / "files"))
        bad = counts.pop(BAD_LINES, 0)
        self.archive.commit(Entry(number, seg, counts, bad, {}, {}, 0))

    def _write(self, folder: Path, rows: list[Row], *, int96: bool) -> None:
        folder.mkdir(parents=True)
        table = pa.Table.from_pylist(rows, self.schema)
        pq.write_table(table, folder / "part-0.parquet", compression="zstd", use_deprecated_int96_timestamps=int96)

    def _bad(self, seg: str, number: int, lines: Sequence[bytes]) -> None:
        folder = self.archive.bad(seg)
        folder.mkdir(parents=True)
        when = datetime.fromtimestamp(MONDAY_MS / 1000, UTC)
        rows = [
            {
                "stream": "s",
                "offset": number,
                "idx": at,
                "reason": "not JSON",
                "line": line,
                "ingest_ts": when,
            }
            for at, line in enumerate(lines)
        ]
        pq.write_table(pa.Table.from_pylist(rows, BAD), folder / "part-0.parquet")

    def compact(self, day: str, rows: Iterable[Row], *segs: str) -> None:
        """That day as compact leaves it."""
        seg, own = f"c-{day}", [_full(row, 0, at) for at, row in enumerate(rows)]
        self._write(self.archive.compacted(day, seg), own, int96=True)
        self.archive.commit_day(Day(day, seg, len(own), segs, 0))


def _full(row: Row, number: int, at: int) -> Row:
    ts_ms = row["ts_ms"]
    place = {
        "stream": "s",
        "offset": number,
        "idx": at,
        "event_ts": _time(ts_ms),
        "ingest_ts": _time(row["ts_ms"] + 200 * HOUR_MS),
    }
    return place | row


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def by_day(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each day, UTC."""
    days: dict[str, list[Row]] = {}
    for row in rows:
        days.setdefault(_time(row["ts_ms"]).date().isoformat(), []).append(row)
    return dict(sorted(days.items()))
