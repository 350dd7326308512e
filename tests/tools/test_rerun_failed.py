"""What failed is named again without the group that workers append, and run again whatever its marks."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.rerun_failed import plain

ROOT: Final = Path(__file__).parents[2]
LEFT_OUT: Final = "[pytest]\nmarkers = clients\naddopts = -m 'not clients'\n"
FAILS: Final = """
from pathlib import Path
import pytest

@pytest.mark.clients
def test_of_a_client():
    runs = Path("runs")
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    assert len(runs.read_text()) > {times}

def test_of_another():
    Path("another").touch()
"""


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("a.py::test_b@", "a.py::test_b"),
        ("a.py::test_b[x@y]@4.3:a.py", "a.py::test_b[x@y]"),
        ("a.py::test_b[c[d]]", "a.py::test_b[c[d]]"),
    ],
)
def test_a_name_loses_its_group_only(told: str, name: str) -> None:
    assert plain(told) == name


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 1)])
def test_what_no_other_run_has_is_run_again_and_fails_if_it_fails_again(tmp_path: Path, times: int, code: int) -> None:
    (tmp_path / "pytest.ini").write_text(LEFT_OUT, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FAILS.format(times=times), encoding="utf-8")
    assert _run(tmp_path, "pytest", "-m", "clients") == 1
    assert _run(tmp_path, str(ROOT / "tools/rerun_failed.py")) == code
    assert (tmp_path / "runs").read_text(encoding="utf-8") == ".."
    assert not (tmp_path / "another").exists(), "which had not failed"


def _run(folder: Path, module: str, *given: str) -> int:
    """The exit code of a program of Python, its output among that of the test."""
    named = [module] if module.endswith(".py") else ["-m", module]
    return subprocess.run([sys.executable, *named, *given], cwd=folder, check=False).returncode
