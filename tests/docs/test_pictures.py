"""The pictures of the docs: what they show is what our programs print."""

import html
import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import PAGES, read
from tools.pages import screenshots

FOLDER: Final = screenshots.FOLDER
DIAGRAM: Final = FOLDER / "flow.svg"
PICTURES: Final = sorted({*FOLDER.glob("*.svg")} - {DIAGRAM})


def _text(svg: str) -> list[str]:
    """Words in the order in which they are drawn; where lines are broken is the drawing's business."""
    return html.unescape(" ".join(re.findall(r">([^<]+)</text>", svg))).split()


def test_every_picture_is_shown_and_the_readme_begins_with_one() -> None:
    shown = {
        (page.path.parent / link).resolve() for page in map(read, PAGES) for link in page.links() if "img/" in link
    }
    assert {path for path in shown if path.suffix == ".svg"} == {*PICTURES, DIAGRAM}
    assert {path.stem for path in PICTURES} == {"demo", *screenshots.COMMANDS}


def test_pictures_of_the_console_are_small_and_those_that_are_shown() -> None:
    photos = sorted(FOLDER.glob("console-*.png"))
    shown = {
        (page.path.parent / link).resolve() for page in map(read, PAGES) for link in page.links() if "img/" in link
    }
    assert {path for path in shown if path.name.startswith("console-")} == {*photos}
    assert {photo.stem for photo in photos} <= {*screenshots.CONSOLE}
    assert [photo.name for photo in photos if photo.stat().st_size > 250_000] == []


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_whole_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = {element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()}
    assert names <= {"svg", "style", "defs", "clipPath", "rect", "g", "text", "circle"}
    assert re.findall(r"https?://[^\"]*|url\((?!#)", text) == ["http://www.w3.org/2000/svg", *_addresses(text)]


def _addresses(text: str) -> list[str]:
    """Where the demo answered: told, not loaded."""
    return re.findall(r"http://127\.0\.0\.1:\d+/metrics[^\"]*", text)


@pytest.mark.parametrize("name", sorted(screenshots.COMMANDS))
def test_a_picture_of_a_command_shows_what_it_prints_now(name: str) -> None:
    drawn = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert _text(drawn) == _text(screenshots.command(name)), "stale: make screenshots"


def test_the_picture_of_the_demo_accounts_for_every_delivery() -> None:
    words = " ".join(_text((FOLDER / "demo.svg").read_text(encoding="utf-8")))
    totals = re.search(r"([\d,]+) deliveries = ([\d,]+) settled \+ (\d+) given back \+ (\d+) in flight", words)
    assert totals
    deliveries, *rest = (int(number.replace(",", "")) for number in totals.groups())
    assert deliveries == sum(rest)
    assert "out of tries" in words
