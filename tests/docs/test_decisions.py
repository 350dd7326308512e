"""Decisions: one template, each in the index with its status, and who overrules whom is said on both sides."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

FOLDER: Final = ROOT / "docs/decisions"
DECISIONS: Final = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS: Final = ("Context", "Decision", "Considered", "Measured", "Cost")
STATUS: Final = re.compile(
    r"in force|(?:partly )?superseded by (?P<by>\[\d{4}\]\([^)]+\)(?:, \[\d{4}\]\([^)]+\))*)(?: \(.+\))?"
)
_ROW: Final = re.compile(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| (.+) \|$", re.MULTILINE)
_NUMBER: Final = re.compile(r"\[(\d{4})\]")
every = pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name[:4])


def labelled(path: Path, label: str) -> str:
    line = re.search(rf"^{label}: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return line[1] if line else ""


def overruled_by(path: Path) -> set[str]:
    status = STATUS.fullmatch(labelled(path, "Status"))
    return {*_NUMBER.findall(status["by"] or "")} if status else set()


def overrules(path: Path) -> set[str]:
    return {*_NUMBER.findall(labelled(path, "Supersedes") + labelled(path, "Supersedes a part of"))}


@every
def test_a_decision_follows_the_template(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    title = re.match(r"# (\d{4}) [^\n]{12,}[^.\n]\n\nStatus: ", text)
    assert title, "a number, and a sentence that says what was decided; then its status"
    assert title[1] == path.name[:4]
    assert STATUS.fullmatch(labelled(path, "Status")), labelled(path, "Status")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert len(sections) == len({*sections})
    assert {*sections} <= {*SECTIONS}
    assert sections[0] == "Context"
    assert {"Decision", "Cost"} <= {*sections}


def test_every_decision_is_in_the_index_with_its_title_and_status() -> None:
    rows = {name: (number, title, status) for number, name, title, status in _ROW.findall(_index())}
    assert rows == {path.name: (path.name[:4], *_shown(path)) for path in DECISIONS}


def _shown(path: Path) -> tuple[str, str]:
    """Title and status; the reasons in brackets stand in the decision only."""
    title = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix(f"# {path.name[:4]} ")
    return title, re.sub(r" \((?![^()]*\.md\)).*$", "", labelled(path, "Status"))


def _index() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_who_overrules_and_who_is_overruled_name_each_other() -> None:
    down = {(path.name[:4], old) for path in DECISIONS for old in overrules(path)}
    up = {(new, path.name[:4]) for path in DECISIONS for new in overruled_by(path)}
    assert down == up
    assert all(new > old for new, old in up)


def test_a_number_is_used_once() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert len(numbers) == len({*numbers})


def test_the_caches_that_are_said_to_be_bounded_are_here() -> None:
    text = next(FOLDER.glob("0052*")).read_text(encoding="utf-8")
    named = re.findall(r"`([a-z]+)\.(_?[A-Z_]+)`", text)
    assert len(named) > 8
    assert [(module, name) for module, name in named if not _is_there(module, name)] == []


def _is_there(module: str, name: str) -> bool:
    """Whether a module of that name keeps something of this name."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "dlx_router").rglob(f"{module}.py"))
    return any(re.search(rf"^{name}\b.*=", text, re.MULTILINE) for text in texts)
