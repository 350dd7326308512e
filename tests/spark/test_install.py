"""The wheel with the extra `spark`, as a user gets it: in a fresh environment `pipeline doctor` is content."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlx_router.spark.java import find_java

ROOT = Path(__file__).parents[2]
PATIENCE_S = 800  # half a gigabyte to unpack


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A folder for the environment; it is too large to stay."""
    yield tmp_path / "venv"
    shutil.rmtree(tmp_path / "venv", ignore_errors=True)


def run(*argv: object, **more: str) -> str:
    """In an environment that knows nothing of ours."""
    index = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("proxy")}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "JAVA_HOME": str(find_java().home), **index, **more}
    done = subprocess.run(
        [*map(str, argv)], capture_output=True, text=True, check=False, env=env, cwd="/", timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_the_wheel_with_its_extra_installs_and_doctor_is_green(fresh: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    into = (*pip, "--python", fresh / "bin" / "python", "install", "--no-compile", "--constraint")
    run(*into, ROOT / "constraints.txt", f"dlx-router[spark] @ {wheel.as_uri()}")
    output = run(fresh / "bin" / "dlx-router", "pipeline", "doctor", "--archive", tmp_path / "archive")
    states = {name: state for state, name, *_ in map(str.split, output.splitlines())}
    names = ("python", "pyspark", "pyarrow", "pandas", "pamqp", "duckdb", "java", "spark", "archive", "signed", "files")
    assert states == dict.fromkeys(names, "ok") | {"broker": "note", "key": "note"}, output
    assert str(fresh) in output
