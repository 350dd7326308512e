"""`make constraints` pins what every extra asks for: what it leaves out is lost from constraints.txt when it is run."""

import re
import tomllib
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT
from tools.release import constraints

EXTRAS: Final[dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def brought(extra: str) -> set[str]:
    """It, and the extras of ours that it asks for."""
    ours = [line for line in map(Requirement, EXTRAS[extra]) if line.name == "dlx-router"]
    return {extra, *(inner for line in ours for name in line.extras for inner in brought(name))}


def test_every_extra_is_asked_for() -> None:
    assert {inner for extra in constraints.EXTRAS for inner in brought(extra)} == {*EXTRAS}


def test_every_package_of_every_extra_is_pinned() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    asked = {canonicalize_name(Requirement(line).name) for lines in EXTRAS.values() for line in lines}
    assert asked - {"dlx-router"} <= pinned
