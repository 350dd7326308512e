"""Errors that a person can mend, in one line; Spark wraps those of its workers in pages of Java."""

import re
from typing import Final

from dlx_router.spark.amqp import StreamError
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.java import JavaMissing
from dlx_router.spark.offsets import DataLoss
from dlx_router.spark.options import OptionError

OURS: Final = (StreamError, DataLoss, JavaMissing, OptionError, ArchiveError)
_NAMES: Final = "|".join([*(one.__name__ for one in OURS), "StreamMissing"])
_NAMED: Final = re.compile(rf"(?:\w+\.)*({_NAMES}): ([^\n]+)")


def own_text(error: BaseException) -> str | None:
    """What our own error says, found in Spark's too; None where it is none of ours."""
    if isinstance(error, OURS):
        return str(error)
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    found = _NAMED.findall(str(error))
    return found[-1][1] if found else None
