"""Errors that a person can mend, in one line; Spark wraps those of its workers in pages of Java."""

import re
from typing import Final

from dlx_router.spark.amqp import StreamError
from dlx_router.spark.archive.layout import ArchiveError
from dlx_router.spark.java import JavaMissing
from dlx_router.spark.offsets import DataLoss
from dlx_router.spark.options import OptionError

OURS: Final = (StreamError, DataLoss, JavaMissing, OptionError, ArchiveError)
_NAMES: Final = "|".join([*(one.__name__ for one in OURS), "StreamMissing"])
_NAMED: Final = re.compile(rf"(?:\w+\.)*({_NAMES}): ([^\n]+)")
# Spark gives the Python of a stream ten seconds to start, which no setting changes, and then ends the query.
# Source: PythonWorkerFactory.createSimpleWorker (SPARK-45245).
_SLOW: Final = re.compile(r"Python worker (?:failed )?to connect back|STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT")


def is_slow_start(error: BaseException) -> bool:
    """Whether a query ended only because the machine was too busy to start a Python process in time."""
    return type(error).__module__.startswith(("pyspark", "py4j")) and _SLOW.search(str(error)) is not None


def own_text(error: BaseException) -> str | None:
    """What our own error says, found in Spark's too; None where it is none of ours."""
    if isinstance(error, OURS):
        return str(error)
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    found = _NAMED.findall(str(error))
    return found[-1][1] if found else None
