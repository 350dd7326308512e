"""dlx-router-client as its users get it: a wheel without a dependency, beside the router's or alone."""

import email
import sys
import zipfile
from pathlib import Path

import pytest

from dlx_router import __version__
from tests.client import programs
from tests.client.programs import CLIENT, NEWEST, OLDEST, ROOT, built, empty_environment, run

pytestmark = pytest.mark.usefixtures("newest")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(CLIENT, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def of_router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("router"))


def _names(wheel: Path) -> set[str]:
    return {*zipfile.ZipFile(wheel).namelist()}


def _modules(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith(".py")}


@pytest.mark.slow
def test_it_holds_the_client_and_nothing_else(wheel: Path) -> None:
    about = f"dlx_router_client-{__version__}.dist-info"
    of_the_tree = {str(path.relative_to(ROOT)) for path in CLIENT.glob("*.py")}
    assert _modules(_names(wheel)) == of_the_tree
    assert _names(wheel) - of_the_tree - {"dlx_router/client/py.typed"} == {
        f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")
    }


def test_it_depends_on_nothing_and_is_in_step_with_the_router(wheel: Path) -> None:
    name = f"dlx_router_client-{__version__}.dist-info/METADATA"
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert (metadata["Version"], metadata["Requires-Python"]) == (__version__, ">=3.9")
    assert [requirement for requirement in metadata.get_all("Requires-Dist", []) if "extra ==" not in requirement] == []
    extras = {"aio-pika", "pika", "faststream", "celery", "dramatiq"}
    assert {*metadata.get_all("Provides-Extra", [])} == extras
    assert {path.stem.replace("_", "-") for path in CLIENT.glob("*.py")} >= extras, "a module for each"
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
def test_no_file_is_in_both_wheels(wheel: Path, of_router: Path) -> None:
    """Whoever installs both and takes one away again keeps the other whole."""
    assert _names(wheel) & _names(of_router) == set()
    assert not any(name.startswith("dlx_router/client/") for name in _names(of_router))
    assert "dlx_router/__init__.py" in _names(of_router)


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST, ""])
def test_in_an_empty_environment_it_works_without_any_library(wheel: Path, tmp_path: Path, version: str) -> None:
    program = programs.python(version) if version else sys.executable
    if program is None:
        pytest.skip(f"there is no Python {version} here")
    inside = empty_environment(program, tmp_path / "venv")
    run(inside, "-m", "pip", "install", "--quiet", "--no-index", str(wheel))
    assert run(inside, "-W", "error", str(ROOT / "tests/client/hostile.py")).startswith("all is well")
    listed = run(inside, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check")
    assert {line.partition("==")[0] for line in listed.split()} - {"pip", "setuptools"} == {"dlx-router-client"}


@pytest.mark.slow
def test_beside_the_router_both_are_one_package(wheel: Path, of_router: Path, tmp_path: Path) -> None:
    inside = empty_environment(sys.executable, tmp_path / "venv")
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "--quiet")
    both = "import dlx_router.core, dlx_router.client.declaration as client; print(client.__file__)"
    for first, second in ((wheel, of_router), (of_router, wheel)):
        run(*pip, "install", "--no-index", "--no-deps", str(first))
        run(*pip, "install", "--no-index", "--no-deps", str(second))
        assert "site-packages/dlx_router/client/declaration.py" in run(inside, "-c", both)
        run(*pip, "uninstall", "--yes", "dlx-router")
        assert "site-packages" in run(inside, "-c", "import dlx_router.client; print(dlx_router.client.__file__)")
        run(*pip, "uninstall", "--yes", "dlx-router-client")


@pytest.mark.slow
def test_the_two_may_lie_in_two_folders_of_the_path(wheel: Path, of_router: Path, tmp_path: Path) -> None:
    """An environment that sees the system's packages, say: without `extend_path` the first one would hide the other."""
    for package, folder in ((wheel, "of_client"), (of_router, "of_router")):
        zipfile.ZipFile(package).extractall(tmp_path / folder)
    for path in (("of_client", "of_router"), ("of_router", "of_client")):
        shown = f"import sys; sys.path[:0] = {[str(tmp_path / place) for place in path]}; import dlx_router.core"
        run(sys.executable, "-S", "-c", f"{shown}; import dlx_router.client.declaration")
