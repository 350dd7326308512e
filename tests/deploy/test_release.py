"""The wheel as a user gets it: built, installed in a fresh environment, and run there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dlx_router import __version__
from tests.deploy.chart import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"dlx_router", f"dlx_router-{__version__}.dist-info"}
    assert "dlx_router/py.typed" in names
    assert __version__ in wheel.name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_fresh_environment_runs_it(wheel: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    pip, router = (str(tmp_path / "venv" / "bin" / name) for name in ("pip", "dlx-router"))
    _run(pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    assert __version__ in _run(router, "--version")
    assert "DLX_ROUTER_AMQP_URL" in _run(router, "run", "--help", COLUMNS="200")
    _run(router, "policy", "lint", str(ROOT / "policies"))


def _run(*argv: str, **more: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **_index(), **more}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _index() -> dict[str, str]:
    """Where pip finds packages, and by which way, is the machine's business."""
    return {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("proxy")}
