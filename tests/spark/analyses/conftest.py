"""One Spark session for all, and a small week whose truth is known.

Skipped where pyspark or Java is absent, but not in CI.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dlx_router.journal import reading
from tests.conftest import MUST
from tests.journal.rows_of import rows_of
from tools.pipeline import week
from tools.pipeline.causes import WEEK_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AS_OF_MS = week.MONDAY_MS + (WEEK_S + 86_400) * 1000
LETTERS = 1200
HERE = Path(__file__).parent
_SMALL = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
_QUICK = {  # to compile code for a thousand rows takes longer than to go through them
    "spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.adaptive.enabled": "false",
}  # fmt: skip

if importlib.util.find_spec("pyspark") is None and not MUST:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    """The session of the run; it ends with the process."""
    from dlx_router.spark.java import JavaMissing  # noqa: PLC0415 - pyspark may be missing
    from dlx_router.spark.session import build_session  # noqa: PLC0415 - pyspark may be missing

    try:
        session = build_session("dlx-router tests", master="local[2,4]", conf=_SMALL)
    except JavaMissing as error:
        pytest.fail(str(error)) if MUST else pytest.skip(str(error))
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


def archived(spark: "SparkSession", journal: bytes, place: Path) -> "DataFrame":
    """Lines of a journal as the archive has them."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - pyspark may be missing

    from tests.spark.rows import frame, messages  # noqa: PLC0415 - pyspark may be missing

    return frame(spark, messages(journal), place).withColumn("signature", f.lit("ok"))


def mixed(journal: list[bytes]) -> bytes:
    """Lines of it, each second hundred of them read from a message in format 2."""
    told: list[bytes] = []
    for at in range(0, len(journal), 100):
        some = journal[at : at + 100]
        told += reading.lines(rows_of(some)) if at % 200 else [one.rstrip() for one in some]
    return b"\n".join(told) + b"\n"


@pytest.fixture(scope="session")
def events(spark: "SparkSession", truth: week.Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator["DataFrame"]:
    """The week in the archive's columns, told in both formats."""
    frame = archived(spark, mixed([*truth.journal()]), tmp_path_factory.mktemp("week") / "week.ndjson").cache()
    yield frame
    frame.unpersist()
