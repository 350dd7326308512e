"""No file of the tree cites a document, or a section of one, that is not here."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tools.pages import site_hooks

_READ: Final = {".py", ".md", ".yml", ".yaml", ".toml", ".sh", ".html", ""}
_DOCUMENT: Final = re.compile(r"(?<![\w/.{}*<-])((?:[\w.-]+/)*[\w-]+\.md)\b(?![(/])")
# A file of tests/ or tools/ by its path from the root, and a program of tools/ by its module.
_FILE: Final = re.compile(r"(?<![\w/.])((?:tests|tools)/[\w/-]+\.(?:py|sh|json|yaml))\b")
_TEST: Final = re.compile(r"(?<![\w/])((?:[a-z_]+/)*test_\w+\.py)\b")  # a page may leave `tests/` away
_PROGRAM: Final = re.compile(r"(?<=-m )tools(?:\.\w+)*")
# Text that a test makes up; and what a changelog tells of what is gone.
_MADE_UP: Final = {f"tests/docs/test_{stem}.py" for stem in ("citations", "docs", "site")} | {
    "CHANGELOG.md",
    "tests/deploy/test_published.py",
}
# Pages that are made: of the site, and those that a run writes into build/.
_MADE: Final = {*site_hooks.OUTSIDE.values(), "bench-pipeline.md"}


@cache
def _tree() -> tuple[Path, ...]:
    """What is committed, or about to be; where there is no git, nothing is made beside it."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    names = listing.stdout.split("\n") if not listing.returncode else [str(path) for path in _walked()]
    return tuple(ROOT / name for name in names if name and Path(name).suffix in _READ and (ROOT / name).is_file())


def _walked() -> list[Path]:
    folders = ("dlx_router", "tests", "tools", "docs", "charts", "deploy", "policies")
    return [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*")]


def _texts() -> list[tuple[str, str]]:
    named = ((str(path.relative_to(ROOT)), path) for path in _tree())
    return [(name, path.read_text(encoding="utf-8", errors="replace")) for name, path in named if name not in _MADE_UP]


def _resolved(name: str, document: str) -> Path | None:
    """Beside the file that cites it, from the root, or in docs/."""
    places = (ROOT / name).parent / document, ROOT / document, ROOT / "docs" / document
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("ext", sorted(_READ))
def test_every_document_that_is_named_is_here(ext: str) -> None:
    missing = [
        (name, document)
        for name, text in _texts()
        if Path(name).suffix == ext
        for document in _DOCUMENT.findall(text)
        if document not in _MADE and _resolved(name, document) is None
    ]
    assert missing == []


@pytest.mark.parametrize("ext", sorted(_READ))
def test_every_file_of_tests_and_tools_that_is_named_is_here(ext: str) -> None:
    gone = [
        (name, path)
        for name, text in _texts()
        if Path(name).suffix == ext
        for path in _FILE.findall(text)
        if not (ROOT / path).is_file()
    ]
    assert gone == []


def test_every_test_that_a_page_names_is_here() -> None:
    named = [(name, test) for name, text in _texts() if name.endswith(".md") for test in _TEST.findall(text)]
    assert named
    assert [(name, test) for name, test in named if not (ROOT / "tests" / test.removeprefix("tests/")).is_file()] == []


@pytest.mark.parametrize("ext", sorted(_READ))
def test_every_program_of_tools_that_is_named_is_here(ext: str) -> None:
    gone = [
        (name, module)
        for name, text in _texts()
        if Path(name).suffix == ext
        for module in _PROGRAM.findall(text)
        if not _starts(ROOT / module.replace(".", "/"))
    ]
    assert gone == []


def _starts(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
