"""CONTRIBUTING.md: what its recipes name is there, and what they promise to be told is told."""

import re
from collections.abc import Iterator
from typing import Any, Final

from typer.core import TyperGroup

from dlx_router.cli.main import program
from tests.conformance.scenario import VERSIONS
from tests.docs import known
from tests.docs.pages import PAGES, ROOT

# Of the client library, not ours.
LIBRARY: Final = "process_"


def test_every_metric_stands_in_a_page() -> None:
    families = {family for family in known.metrics() if not re.search(r"_(bucket|sum|count)$", family)}
    text = _pages()
    assert {
        family
        for family in families
        if not family.startswith(LIBRARY) and family.removeprefix("dlx_router_") not in text
    } == set()


def test_every_command_stands_in_a_page() -> None:
    text = _pages()
    missing = [command for command in _commands(program()) if not re.search(rf"(dlx-router |`){command}\b", text)]
    assert missing == []


def _pages() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in PAGES if path.name != "CHANGELOG.md")


def _commands(command: Any, before: str = "") -> Iterator[str]:  # typer brings a click of its own
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{before} {name}".strip())
    else:
        yield before


def test_versions_of_rabbitmq_are_the_same_everywhere() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = re.search(r"^versions := (\d.+)$", makefile, re.MULTILINE)
    tables = [
        re.findall(r'"([\d.]+)":', match[1])
        for path in (ROOT / "tools").rglob("*.py")
        if (match := re.search(r"^RELEASES: Final = \{(.+)\}$", path.read_text(encoding="utf-8"), re.MULTILINE))
    ]
    assert asked is not None
    assert (asked[1].split(), tables) == ([*VERSIONS], [[*VERSIONS]])
