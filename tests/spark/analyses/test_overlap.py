"""Two plans of one archive, without an ingest between them: their letters would go twice, and somebody says so."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlx_router.cli.main import main
from dlx_router.spark.redrive.overlap import Overlap, overlaps
from dlx_router.spark.redrive.plan import Plan, replace_text

pytestmark = pytest.mark.spark
KNOWN_MS: Final = 1_790_000_000_000
LATER_MS: Final = KNOWN_MS + 60_000


def made(folder: Path, *chunks: list[int], queue: str = "orders", vhost: str = "shop") -> Plan:
    """A plan of these letters in chunks, of which none is sent."""
    (folder / "ledger").mkdir(parents=True)
    for number, letters in enumerate(chunks):
        (folder / f"chunks/chunk={number}").mkdir(parents=True)
        rows = [{"vhost": vhost, "id": f"{each}", "failed_queue": queue} for each in letters]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"chunks/chunk={number}/part.parquet")
    count = sum(map(len, chunks))
    plan = Plan(f"r-{folder.name}", {}, count, len(chunks), 0, {queue: count}, KNOWN_MS)
    replace_text(folder / "plan.json", json.dumps(asdict(plan)))
    return plan


def sent(folder: Path, number: int, at_ms: int = LATER_MS, failed: Mapping[int, str] | None = None) -> None:
    """A chunk is in the ledger."""
    letters: list[Any] = [
        {"vhost": "shop", "id": f"{each}", "failed_queue": "orders", "result": result}
        for each, result in (failed or {}).items()
    ]
    entry = {"confirmed": 1, "failed": letters, "at_ms": at_ms}
    replace_text(folder / f"ledger/{number}.json", json.dumps(entry))


def test_letters_that_a_plan_beside_sent_since_are_counted(tmp_path: Path) -> None:
    made(tmp_path / "first", [1, 2, 3], [4, 5], [6])
    second = made(tmp_path / "second", [2, 3, 4], [5, 6, 7], vhost="moved")
    assert overlaps(tmp_path / "second", second) == []
    sent(tmp_path / "first", 0, failed={2: "returned"})
    sent(tmp_path / "first", 1, at_ms=LATER_MS + 1, failed={5: "in doubt: its worker was lost"})
    assert overlaps(tmp_path / "second", second) == [Overlap(tmp_path / "first", 3, LATER_MS + 1)]  # 3, 4, 5
    (tmp_path / "first/ledger/2.begun").write_text("1")
    os.utime(tmp_path / "first/ledger/2.begun", (LATER_MS / 1000, LATER_MS / 1000))
    assert overlaps(tmp_path / "second", second) == [Overlap(tmp_path / "first", 4, LATER_MS + 1)]
    (tmp_path / "second/ledger/0.begun").write_text("1")
    assert overlaps(tmp_path / "second", second) == [], "that was decided"


@pytest.mark.parametrize("at_ms", [KNOWN_MS, 5])
def test_what_the_archive_knew_is_no_overlap(tmp_path: Path, at_ms: int) -> None:
    made(tmp_path / "first", [1])
    sent(tmp_path / "first", 0, at_ms)
    assert overlaps(tmp_path / "second", made(tmp_path / "second", [1])) == []


def test_other_letters_other_queues_and_what_is_no_plan_are_no_overlap(tmp_path: Path) -> None:
    made(tmp_path / "queue", [1], queue="mail")
    made(tmp_path / "letters", [10, 11])
    for name in ("queue", "letters"):
        sent(tmp_path / name, 0)
    made(tmp_path / "broken", [1])
    (tmp_path / "broken/ledger/0.json").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/plan.json").write_text("{}")
    (tmp_path / "file").write_text("")
    assert overlaps(tmp_path / "second", made(tmp_path / "second", [1])) == []


def test_a_plan_whose_letters_went_by_another_is_not_sent_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing said so: the archive called them dead still, and each consumer had them twice."""
    for name in ("first", "second"):
        made(tmp_path / name, [1, 2])
    sent(tmp_path / "first", 0)
    (tmp_path / "url").write_text("amqp://guest:guest@127.0.0.1:1/shop")
    (tmp_path / "key").write_text("k" * 32)
    monkeypatch.setenv("DLX_ROUTER_PROVENANCE_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "redrive", str(tmp_path / "second"), "--connection", f"file:{tmp_path}/url", "--yes"])
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert "known until 2026-09-21 14:13:20 UTC" in printed
    assert f"2 letters of it went by {tmp_path}/first, until 2026-09-21 14:14:20 UTC" in printed
    assert not [*(tmp_path / "second/ledger").iterdir()]
