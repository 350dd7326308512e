"""Errors that a person can mend, in one line; Spark wraps those of its workers in pages of Java."""

import errno
import re
from typing import Final

from dlx_router.spark.amqp import StreamError
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.java import JavaMissing
from dlx_router.spark.offsets import DataLoss
from dlx_router.spark.options import OptionError
from dlx_router.spark.scratch import FULL, MORE_ROOM

OURS: Final = (StreamError, DataLoss, JavaMissing, OptionError, ArchiveError)
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SPACE: Final = "No space left on device"
_NAMES: Final = "|".join([*(kind.__name__ for kind in OURS), "StreamMissing"])
_NAMED: Final = re.compile(rf"(?:\w+\.)*({_NAMES}): ([^\n]+)")


def own_text(error: BaseException) -> str | None:
    """What our own error says, found in Spark's too; None where it is none of ours."""
    if isinstance(error, OURS):
        return str(error)
    if isinstance(error, OSError):
        return _of_the_system(error)
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    if matches := _NAMED.findall(str(error)):
        return str(matches[-1][1])
    return f"Spark: no space left on a disk; {MORE_ROOM}, or beside the archive" if _NO_SPACE in str(error) else None


def _of_the_system(error: OSError) -> str | None:
    """Of a disk that is full or a file that this user may not have; others are errors of ours."""
    where = f"{error.filename or 'a file'}: {error.strerror}"
    if error.errno in FULL:
        return f"{where}; {MORE_ROOM}, or where this file lies"
    return f"{where}; run it as a user who may" if error.errno in _DENIED else None
