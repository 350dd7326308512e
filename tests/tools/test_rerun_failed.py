"""A test that fails beside others and passes alone is no failure of `make test`; what fails again or crashes is one."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.rerun_failed import MANY, plain

TOOL: Final = Path(__file__).parents[2] / "tools/rerun_failed.py"
LEFT_OUT: Final = "[pytest]\nmarkers = clients\naddopts = -m 'not clients'\n"
FAILS: Final = """
from pathlib import Path
import os, pytest

def so_far(name):
    runs = Path(name)
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    return len(runs.read_text())

@pytest.mark.clients
@pytest.mark.parametrize("number", range({count}))
def test_of_a_client(number, request):
    Path("seed").open("a").write(os.environ["DLX_ROUTER_TEST_SEED"] + " ")
    {crash}
    assert so_far(f"runs{{number}}") > {times}

@pytest.mark.clients
def test_of_another():
    so_far("another")
"""


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("a.py::test_b@", "a.py::test_b"),
        ("a.py::test_b[x@y]@4.3:a.py", "a.py::test_b[x@y]"),
        ("a.py::test_b[c[d]]", "a.py::test_b[c[d]]"),
    ],
)
def test_a_name_loses_its_group_only(reported: str, name: str) -> None:
    assert plain(reported) == name


@pytest.mark.parametrize(
    ("times", "count", "crash", "code", "runs"),
    [
        pytest.param(0, 1, "", 0, ".", id="passes"),
        pytest.param(1, 2, "", 0, "..", id="passes alone"),
        pytest.param(2, 2, "", 1, "..", id="fails again"),
        pytest.param(1, MANY + 1, "", 1, ".", id="too many"),
        pytest.param(1, 1, "pytest.exit('gone', 3)", 1, "", id="crashes"),
    ],
)
def test_failures_are_run_again_alone(tmp_path: Path, times: int, count: int, crash: str, code: int, runs: str) -> None:
    (tmp_path / "pytest.ini").write_text(LEFT_OUT, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FAILS.format(times=times, count=count, crash=crash), encoding="utf-8")
    argv = [sys.executable, str(TOOL), "-m", "clients", "-n", "0"]
    done = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stdout
    assert [file.read_text(encoding="utf-8") for file in sorted(tmp_path.glob("runs*"))] == [runs] * count * bool(runs)
    assert not (tmp_path / "another").exists() or (tmp_path / "another").read_text(encoding="utf-8") == "."
    assert len(set((tmp_path / "seed").read_text(encoding="utf-8").split())) == 1, "a draw by seed has the same names"
    results = re.findall(r"^=.* in [0-9.]+s.*=$", done.stdout, re.MULTILINE)
    assert len(results) == max(1, len(runs))
