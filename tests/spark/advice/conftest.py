"""The session and the small week of the analyses."""

from tests.spark.analyses.conftest import events, lines, spark, truth

__all__ = ["events", "lines", "spark", "truth"]
