"""The Python of workers on this machine: ours, without the copy of PySpark that Spark puts before the installed one.

That copy is a zip without compiled code, so every process of a worker compiles Spark's Python anew: most of its
start, for which Spark waits ten seconds at most. The installed package is the same one, compiled once.
"""

import importlib.util
import shlex
import sys
from functools import cache
from typing import Final

from dlx_router.spark import scratch

_SHIM: Final = """\
#!/bin/sh
# Spark puts archives of itself first, which every process compiles anew; the same package is installed.
set -f
kept=
IFS=:
for path in $PYTHONPATH; do
  case $path in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
    *) kept=$kept${{kept:+:}}$path ;;
  esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


@cache
def python() -> str:
    """A program that workers are started with: this interpreter, its PySpark and py4j. Removed when we end."""
    if importlib.util.find_spec("py4j") is None or "pyspark.zip" in str(importlib.util.find_spec("pyspark")):
        return sys.executable  # a distribution of Spark without pip: its zips are all there is
    shim = scratch.of_process() / "python3"
    shim.write_text(_SHIM.format(python=shlex.quote(sys.executable)), encoding="utf-8")
    shim.chmod(0o700)
    return str(shim)
