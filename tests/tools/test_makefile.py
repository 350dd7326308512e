"""`make help` says what there is: every target, in a group, in one line each."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
_TARGET: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
_RULE: Final = re.compile(r"^([a-z][a-z-]*):.*?  ## (.+)$")


def _groups() -> Iterator[tuple[str, str, str]]:
    """Group, target and text, in the order of the file."""
    group = ""
    for line in TEXT.splitlines():
        if line.startswith("##@ "):
            group = line.removeprefix("##@ ")
        elif match := _RULE.match(line):
            yield group, match[1], match[2]


def test_every_target_has_a_text_and_a_group() -> None:
    entries = list(_groups())
    assert [target for _, target, _ in entries] == _TARGET.findall(TEXT)
    assert [target for group, target, _ in entries if not group] == []


@pytest.mark.parametrize("module", sorted(set(re.findall(r"-m (tools[.\w]+)", TEXT))))
def test_what_a_target_starts_is_here(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_what_ci_and_our_programs_ask_make_for_exists() -> None:
    commands = re.sub(r"#.*", "", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    asked = {*re.findall(r"\bmake ([a-z][a-z-]*)", commands)}
    asked |= {
        target
        for folder in ("tools", "tests", "dlx_router")
        for path in (ROOT / folder).rglob("*.py")
        for target in re.findall(r"`make ([a-z][a-z-]*)[^`]*`", path.read_text(encoding="utf-8"))
    }
    assert sorted(asked - {*_TARGET.findall(TEXT)}) == []


def test_a_target_that_chooses_tests_leaves_out_what_has_a_target_of_its_own() -> None:
    """Its `-m` replaces that of pyproject.toml: it would build images, or measure beside other tests."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    left_out = set(settings["tool"]["pytest"]["ini_options"]["addopts"][-1].split(" and "))
    chosen = [markers.split(" and ") for markers in re.findall(r'-m "(.+?)"', TEXT)]
    assert len(chosen) == 2
    assert [sorted(left_out - {*words}) for words in chosen] == [[], []]
