"""No file of the tree cites a document, or a section of one, that is not here."""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT, read
from tools.pages import site_hooks

_READ: Final = {".py", ".md", ".yml", ".yaml", ".toml", ".sh", ".html", ""}
_DOCUMENT: Final = re.compile(r"(?<![\w/.{}*<-])((?:[\w.-]+/)*[\w-]+\.md)\b(?![(/])")
_SECTION: Final = re.compile(r'((?:[\w.-]+/)*[\w-]+\.md),?\s+\(?"([^"]+)"')
# "Source: WORDS" or WORDS ("Section"): a document by its bare name.
_BARE: Final = re.compile(r'Source:\s+[A-Z]{5,}\b|\b[A-Z]{5,} \("')
# A file of tests/ or tools/ by its path from the root, and a program of tools/ by its module.
_FILE: Final = re.compile(r"(?<![\w/.])((?:tests|tools)/[\w/-]+\.(?:py|sh|json|yaml))\b")
_TEST: Final = re.compile(r"(?<![\w/])((?:[a-z_]+/)*test_\w+\.py)\b")  # a page may leave `tests/` away
_PROGRAM: Final = re.compile(r"(?<=-m )tools(?:\.\w+)*")
_ALWAYS: Final = re.compile(r"\b(INTERFACES|ARCHITECTURE|HANDOVER)\b")
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


def test_every_section_that_is_named_is_a_heading() -> None:
    wrong = []
    for name, text in _texts():
        if not name.endswith(".py"):
            continue
        for document, section in _SECTION.findall(text):
            path = _resolved(name, document)
            if path is not None and " ".join(section.split()) not in _headings(path):
                wrong.append((name, document, section))
    assert wrong == []


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


@cache
def _headings(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^#+ +(.+?) *$", read(path).prose, re.MULTILINE))


def test_no_document_is_cited_by_a_bare_name() -> None:
    cited = [
        (name, match[0]) for name, text in _texts() for pattern in (_BARE, _ALWAYS) for match in pattern.finditer(text)
    ]
    assert cited == []


def test_the_layers_are_told_as_the_contract_has_them() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(
        contract["layers"] for contract in linter["contracts"] if contract.get("containers") == ["dlx_router"]
    )
    lines = re.findall(r"^ +(__main__ → .+)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert lines == [" → ".join(layer for layer in layers if layer != "client")]  # which stands alone


def test_the_modules_that_the_architecture_names_are_here() -> None:
    page = read(ROOT / "docs/architecture.md")
    named = {
        span for span in page.spans() if re.fullmatch(r"[a-z]+(/[a-z_]+)+/?", span) and not span.startswith("tests")
    }
    package = ROOT / "dlx_router"
    gone = {name for name in named if not (package / f"{name}.py").is_file() and not (package / name).is_dir()}
    assert gone == set()
    assert {f"{folder.name}/" for folder in package.iterdir() if (folder / "__init__.py").is_file()} <= {*page.spans()}
