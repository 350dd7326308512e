"""What is measured of the calls that a letter takes, on packages of a few lines and on the router."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.calls import run as calls
from tools.calls.letter_path import WAYS, Trace, measure

Files = Mapping[str, str]


def _package(folder: Path, files: Files) -> Path:
    package = folder / "made"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


A = """\
from made import b

def run(act):
    b.one()
    b.one()
    return act(own)

def own():
    return [one for one in ()]
"""
B = """\
from colorsys import rgb_to_yiq

def one():
    two()

def two():
    rgb_to_yiq(0, 0, 0)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    """A package whose `a.run()` goes by `b` into the stage and back."""
    package = _package(tmp_path, {"a.py": A, "b.py": B})
    sys.path.insert(0, str(tmp_path))
    try:
        yield __import__("made.a").a, package
    finally:
        sys.path.remove(str(tmp_path))
        for name in ("made", "made.a", "made.b"):
            sys.modules.pop(name, None)


def test_calls_and_moves_of_a_way(made: tuple[Any, Path]) -> None:
    a, package = made
    with Trace(package, (__file__,)) as trace:
        a.run(lambda own: own())
    way = trace.way()
    assert way.files == ("a.py", "b.py")
    assert way.moves == 2, "what the stage calls back is no move"
    assert way.calls == 2 + 2 * 3, "run and own; one, two and the library's twice each"
    assert sys.getprofile() is None


def test_the_numbers_of_a_letter_are_the_same_each_time() -> None:
    first, second = measure(), measure()
    assert first == second
    for ways in first.values():
        assert tuple(ways) == WAYS
        assert all("broker/consumer.py" in way.files and "broker/publisher.py" in way.files for way in ways.values())
        assert ways["first"].calls > ways["short"].calls >= ways["shape"].calls > ways["run"].calls / 10
        assert ways["shape"].sent_bytes >= ways["run"].sent_bytes > 0


@pytest.mark.parametrize(
    ("baseline", "higher"),
    [
        ({"python": "3.11", "numbers": {"first_calls": 11}}, ["first_calls"]),
        ({"python": "3.11", "numbers": {"first_calls": 12}}, []),
        ({"python": "3.11", "numbers": {}}, []),
        ({"python": "3.12", "numbers": {"first_calls": 11}}, []),
        ({}, []),
    ],
)
def test_a_cost_above_the_baseline_is_an_increase(baseline: dict[str, Any], higher: list[str]) -> None:
    assert calls.increases({"first_calls": 12}, baseline, python="3.11") == higher
