"""DuckDB and Spark make the same days of the same segments, whatever chance put into them."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.folding import Fold, by_spark
from dlx_router.spark.archive.reading import read
from dlx_router.spark.tables.database import fold
from tests.spark.analyses.test_report_engines import journal
from tests.spark.test_compact import Book
from tests.support.version_draw import drawn
from tools.pipeline.week import MONDAY_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000


def rows(spark: "SparkSession", root: Path) -> list[str]:
    """All columns of all events, but the name of their day's file."""
    return sorted(str(row.asDict(recursive=True)) for row in read(spark, root).drop("seg").collect())


@pytest.mark.slow
@pytest.mark.parametrize("seed", drawn([1, 2, 3]))
def test_both_make_the_same_days(spark: "SparkSession", tmp_path: Path, seed: int) -> None:
    book, lines = Book(spark, tmp_path / "archive"), journal(seed)
    book.put(*lines[: len(lines) // 2], *lines[:20])
    book.put(*lines[len(lines) // 3 :])
    other = tmp_path / "other"
    shutil.copytree(book.archive.root, other)
    folds: list[tuple[Path, Fold]] = [(book.archive.root, fold), (other, by_spark(spark, other))]
    compacted = 0
    for days in (1, 30):  # some days are compacted when those behind them come
        now = datetime.fromtimestamp((MONDAY_MS + days * DAY_MS) / 1000, UTC)
        done = [compact(how, root, Rules(), now=now) for root, how in folds]
        assert done[0] == done[1]
        compacted += done[0].events
        assert rows(spark, book.archive.root) == rows(spark, other)
    assert compacted
