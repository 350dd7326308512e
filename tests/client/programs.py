"""Pythons of this machine, and the two wheels of this tree: what tests of the distribution are made of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = ROOT / "dlx_router/client"
OLDEST, NEWEST = "3.9", "3.13"  # of those that dlx-router-client is for


def python(version: str) -> str | None:
    """The program of a version: where pyenv keeps them, or on the PATH, but for pyenv's own, which lead nowhere."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"), reverse=True)
    folders = [*map(str, kept), *(folder for folder in os.get_exec_path() if not folder.endswith("/shims"))]
    return shutil.which(f"python{version}", path=os.pathsep.join(folders))


def built(project: Path, folder: Path) -> Path:
    """Its wheel, built from the tree."""
    before = {*folder.glob("*.whl")}
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(project))
    (wheel,) = {*folder.glob("*.whl")} - before
    return wheel


def empty_environment(program: str, folder: Path) -> str:
    """A virtual environment with nothing in it; its Python."""
    run(program, "-m", "venv", str(folder))
    return str(folder / "bin/python")


def run(*argv: str, cwd: Path = Path("/")) -> str:
    """What it printed; it has to end well. Nothing of this process's environment leads it back to this tree."""
    kept = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("proxy")}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **kept}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
