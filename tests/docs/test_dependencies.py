"""Each dependency has its reason in docs/decisions, and constraints.txt says which version of it is installed."""

import re
import tomllib
from importlib import metadata
from typing import Final

import pytest
from packaging.specifiers import SpecifierSet

from tests.docs.pages import PAGES, ROOT

_PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_WRITTEN: Final = [
    *_PROJECT["dependencies"],
    *(requirement for extra in _PROJECT["optional-dependencies"].values() for requirement in extra),
]
NAMES: Final = sorted({re.match(r"[A-Za-z0-9._-]+", requirement)[0] for requirement in _WRITTEN} - {_PROJECT["name"]})  # type: ignore[index]  # each has a name


def _normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", NAMES)
def test_a_version_is_chosen(name: str) -> None:
    chosen = re.findall(r"^([^#\s=]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert _normal(name) in map(_normal, chosen)


def test_what_is_chosen_runs_on_the_oldest_python_that_the_readme_promises() -> None:
    """Debian 12 has 3.11.2; a version for newer ones only lets the two commands fail there."""
    named = re.findall(r"^([^#\s=]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    here = {_normal(package.name): package.metadata["Requires-Python"] for package in metadata.distributions()}
    asks = {name: here.get(_normal(name)) or "" for name in named}
    assert {name: spec for name, spec in asks.items() if not SpecifierSet(spec).contains("3.11.2")} == {}


def test_nobody_is_told_to_install_a_name_that_is_not_published() -> None:
    """Who registers it first would be installed by our readers. It goes with the first release."""
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "dlx_router").rglob("*.py")]
    pages = [path.read_text(encoding="utf-8") for path in PAGES]
    commands = [
        command for text in (*code, *pages) for command in re.findall(r"pip3? install (?:-\S+ )*['\"]?dlx-router", text)
    ]
    assert commands == []
