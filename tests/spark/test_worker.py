"""What workers on this machine are started with, and queries whose Python was slow to start."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from dlx_router.spark import worker
from dlx_router.spark.slow_start import STARTS, patiently

SLOW = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
_WHERE = "import pyspark, py4j, sys; print(pyspark.__file__); print(py4j.__file__); print(*sys.path, sep='\\n')"


def test_workers_have_the_installed_pyspark_and_the_rest_of_their_path(tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    zips = [*(home / "python" / "lib").glob("*.zip"), *(home / "jars").glob("spark-core_*.jar")]
    assert len(zips) == 3
    path = os.pathsep.join(map(str, [*zips, tmp_path, "/with a space*"]))
    done = subprocess.run(
        [worker.python(), "-c", _WHERE],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert Path(lines[0]).parent == home
    assert not set(map(str, zips)) & set(lines)
    assert {str(tmp_path), "/with a space*"} <= set(lines)
    assert "zip" not in lines[1]


def test_its_exit_code_is_pythons() -> None:
    assert subprocess.run([worker.python(), "-c", "raise SystemExit(7)"], check=False).returncode == 7
    assert subprocess.run([worker.python(), "--version"], capture_output=True, text=True, check=True).stdout.split()[
        1
    ] == sys.version.split(maxsplit=1)[0].rstrip("+")


@pytest.mark.parametrize(("failures", "works"), [(0, True), (1, True), (STARTS - 1, True), (STARTS, False)])
def test_a_query_whose_python_was_slow_is_started_again_some_times(failures: int, works: bool) -> None:  # noqa: FBT001 - a column of the table
    calls = []

    def run() -> None:
        calls.append(1)
        if len(calls) <= failures:
            raise StreamingQueryException(SLOW)

    if works:
        patiently(run)
        assert len(calls) == failures + 1
    else:
        with pytest.raises(StreamingQueryException, match="connect back"):
            patiently(run)
        assert len(calls) == STARTS


@pytest.mark.parametrize("error", [ValueError(SLOW), StreamingQueryException("DataLoss: offsets 3 to 4 are gone")])
def test_another_error_is_not_tried_again(error: Exception) -> None:
    calls = []

    def run() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        patiently(run)
    assert len(calls) == 1
