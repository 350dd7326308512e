"""One Spark session for all, and a small week whose truth is known."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import week
from week_causes import WEEK_S

pytest.importorskip("pyspark", reason="the pipeline needs the extra `spark`") if os.environ.get(
    "CI"
) != "true" else None

from pyspark.sql import DataFrame, SparkSession  # noqa: E402 - after the check that it is there
from pyspark.sql import functions as f  # noqa: E402

from dlx_router.spark import schemas  # noqa: E402
from dlx_router.spark.archive.parsing import rows  # noqa: E402
from dlx_router.spark.java import JavaMissing  # noqa: E402
from dlx_router.spark.session import build_session  # noqa: E402

AS_OF_MS = week.MONDAY_MS + (WEEK_S + 86_400) * 1000
LETTERS = 1200
_SMALL = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
_QUICK = {  # to compile code for a thousand rows takes longer than to go through them
    "spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.adaptive.enabled": "false",
}  # fmt: skip


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session of the run; it ends with the process."""
    try:
        session = build_session("dlx-router tests", master="local[2,4]", conf=_SMALL)
    except JavaMissing as error:
        pytest.fail(str(error)) if os.environ.get("CI") == "true" else pytest.skip(str(error))
    for name, value in _QUICK.items():  # another test may have made the session
        session.conf.set(name, value)
    return session


@pytest.fixture(scope="session")
def truth() -> week.Truth:
    return week.week(LETTERS, seed=11)


@pytest.fixture(scope="session")
def lines(truth: week.Truth) -> list[dict[str, Any]]:
    """The journal of the week, read without Spark."""
    return [json.loads(line) for line in truth.journal()]


def archived(spark: SparkSession, journal: bytes, place: Path) -> DataFrame:
    """Lines of a journal as the archive has them."""
    place.write_bytes(journal)
    source = spark.read.text(str(place)).select(
        f.lit("journal").alias("stream"), f.monotonically_increasing_id().alias("offset"),
        f.col("value").cast("binary").alias("body"),
    )  # fmt: skip
    return rows(source).select(*(name for name in schemas.ARCHIVE.names if name != "seg"))


@pytest.fixture(scope="session")
def events(spark: SparkSession, truth: week.Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    """The week in the archive's columns."""
    frame = archived(spark, b"".join(truth.journal()), tmp_path_factory.mktemp("week") / "week.ndjson").cache()
    yield frame
    frame.unpersist()
