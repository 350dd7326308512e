"""`dlx-router pipeline compact`: by DuckDB, and by Spark where a cluster is named. Java only for that."""

from pathlib import Path

from dlx_router.spark.archive.compact import Compacted, Rules, compact
from dlx_router.spark.archive.folding import by_spark
from dlx_router.spark.session import build_session, is_submitted
from dlx_router.spark.tables.database import fold


def run(root: Path, rules: Rules, *, master: str | None, remote: str | None) -> Compacted:
    """What was done."""
    if not (master or remote or is_submitted()):
        return compact(fold, root, rules)
    spark = build_session("dlx-router compact", master=master, remote=remote)
    try:
        return compact(by_spark(spark, root), root, rules)
    finally:
        spark.stop()
