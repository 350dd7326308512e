"""docs/architecture.md and docs/read-the-code.md: what they say of the tree is so."""

import re
from typing import Final

from tests.docs.pages import ROOT, read

PACKAGE: Final = ROOT / "dlx_router"
PAGE: Final = read(ROOT / "docs/architecture.md")
READING: Final = read(ROOT / "docs/read-the-code.md")
_GLOSSARY: Final = re.compile(r"^\| `(service/[a-z0-9_/]+)` \| (\S.*) \|$", re.MULTILINE)
_STOP: Final = re.compile(r"^\| (\d+) \| `([^`]+)` \| (\d+) \| (\S.*) \|$", re.MULTILINE)


def test_each_module_of_the_service_has_its_word_in_the_glossary() -> None:
    text = PAGE.text.partition("## Glossary of `service/`")[2].partition("\n## ")[0]
    modules = {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in (PACKAGE / "service").rglob("*.py")
        if path.stem != "__init__"
    }
    listed = [module for module, _ in _GLOSSARY.findall(text)]
    assert sorted(listed) == sorted(modules), "a row too few, too many, or twice"
    words = [word for _, word in _GLOSSARY.findall(text)]
    assert len(words) == len({*words})


def test_the_map_names_each_folder_of_the_configuration_and_of_the_service() -> None:
    rows = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", PAGE.text, re.MULTILINE))
    for package in ("config", "service"):
        folders = {
            f"`{folder.name}/`" for folder in (PACKAGE / package).iterdir() if (folder / "__init__.py").is_file()
        }
        assert {folder for folder in folders if folder not in rows[package]} == set()


def test_the_way_of_a_letter_names_modules_that_are_here() -> None:
    (picture,) = [block.text for block in PAGE.blocks if "broker/consumer" in block.text]
    named = {*re.findall(r"\b(?:broker|core|dispatch|inflight)/\w+", picture)}
    assert len(named) > 10
    assert {name for name in named if not _is_module(name)} == set()


def _is_module(name: str) -> bool:
    return any((PACKAGE / folder / f"{name}.py").is_file() for folder in ("", "service"))


def test_the_way_to_read_the_code_names_files_that_are_here_and_takes_an_hour() -> None:
    stops = _STOP.findall(READING.text)
    assert 10 <= len(stops) <= 14
    assert [int(number) for number, *_ in stops] == [*range(1, len(stops) + 1)]
    assert [path for _, path, *_ in stops if not (ROOT / path).is_file()] == []
    assert sum(int(minutes) for _, _, minutes, _ in stops) == 60


def test_what_is_to_be_looked_at_in_a_file_is_in_it() -> None:
    missing = [
        (path, name)
        for _, path, _, what in _STOP.findall(READING.text)
        for name in re.findall(r"`(\w+)`", what)
        if name not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []
