"""Spark gives the Python of a stream ten seconds to start, which no setting changes, and then ends the query.

Source: PythonWorkerFactory.createSimpleWorker (SPARK-45245).
"""

import re
from collections.abc import Callable
from typing import Final

STARTS: Final = 6
_SLOW: Final = re.compile(r"Python worker (?:failed )?to connect back|STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT")


def patiently(run: Callable[[], None]) -> None:
    """Run it, and again where Spark did not wait until its Python had started; after STARTS times its error counts."""
    for _ in range(STARTS - 1):
        try:
            return run()
        except Exception as error:
            if not is_slow_start(error):
                raise
    return run()


def is_slow_start(error: BaseException) -> bool:
    """Whether a query ended only because the machine was too busy to start a Python process in time."""
    return type(error).__module__.startswith(("pyspark", "py4j")) and _SLOW.search(str(error)) is not None
