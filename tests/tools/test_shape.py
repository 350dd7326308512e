"""What is measured of the shape of the package, on packages of a few lines each."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.shape import run as shape
from tools.shape import source as code
from tools.shape.letter_path import WAYS, Trace, Way, measure

Files = Mapping[str, str]


def _package(folder: Path, files: Files) -> Path:
    package = folder / "made"
    for name, text in {"__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def _edges(folder: Path, files: Files) -> dict[str, frozenset[str]]:
    return code.imports(code.modules(_package(folder, files)))


def test_lines_are_those_of_wc(tmp_path: Path) -> None:
    modules = code.modules(
        _package(tmp_path, {"a.py": "x = 1\n\ny = 2\n", "b.py": "z = 3", "in/c.py": "\n", "no.txt": "\n"})
    )
    assert {name: module.lines for name, module in modules.items()} == {
        "made": 0,
        "made.a": 3,
        "made.b": 0,
        "made.in.c": 1,
    }


@pytest.mark.parametrize(
    ("file", "text", "imported"),
    [
        ("a.py", "import made.b", {"made.b"}),
        ("a.py", "from made import b", {"made.b"}),
        ("a.py", "from made import VERSION", {"made"}),
        ("a.py", "from made.b import thing, other", {"made.b"}),
        ("a.py", "from made.sub import c, thing", {"made.sub", "made.sub.c"}),
        ("a.py", "from . import b", {"made.b"}),
        ("a.py", "from .sub.c import thing", {"made.sub.c"}),
        ("sub/c.py", "from .. import b", {"made.b"}),
        ("sub/__init__.py", "from .c import thing", {"made.sub.c"}),
        ("a.py", "def f():\n    from made import b", {"made.b"}),
        ("a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import made.b", {"made.b"}),
        ("a.py", "import os, json\nfrom made.gone import x\nimport made.a", set()),
    ],
)
def test_each_form_of_an_import_is_read(tmp_path: Path, file: str, text: str, imported: set[str]) -> None:
    files = {"a.py": "", "b.py": "", "sub/__init__.py": "", "sub/c.py": "", file: text}
    name = "made." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert _edges(tmp_path, files)[name] == imported


@pytest.mark.parametrize(
    ("edges", "circles"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "a", "d": "a"}, [["a", "b", "c"]]),
        ({"a": "b", "b": "a", "c": "de", "d": "c", "e": "c"}, [["c", "d", "e"], ["a", "b"]]),
        ({"a": "a"}, []),
    ],
)
def test_circles_are_found_largest_first(edges: dict[str, str], circles: list[list[str]]) -> None:
    assert code.circles({name: frozenset(to) for name, to in edges.items()}) == circles


def test_packages_beside_each_other_make_a_circle_where_no_module_does(tmp_path: Path) -> None:
    files = {
        "one/__init__.py": "",
        "one/a.py": "import made.two.c",
        "one/b.py": "",
        "two/__init__.py": "",
        "two/c.py": "",
        "two/d.py": "from made.one import b",
    }
    edges = _edges(tmp_path, files)
    assert code.circles(edges) == []
    assert code.sibling_circles(edges) == [["made.one", "made.two"]]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("import made.low", []),
        ("from made.low import x", []),
        ("import made.top", [("made.beside", "made.top")]),
        ("import made.middle.a", [("made.beside", "made.middle.a")]),
    ],
)
def test_imports_against_the_layers_are_found(tmp_path: Path, text: str, wrong: list[tuple[str, str]]) -> None:
    files = {"top.py": "import made.middle.a", "middle/a.py": "import made.low", "low.py": "", "beside.py": text}
    held = code.layering(_edges(tmp_path, files), "made", [["top"], ["middle", "beside"], ["low"], ["gone"]])
    assert held == code.Layering(["gone"], [], wrong)
    assert code.layering(_edges(tmp_path, files), "made", [["top"], ["middle"], ["low"]]).loose == ["beside"]


def test_who_has_one_importer_alone(tmp_path: Path) -> None:
    files = {"a.py": "import made.b\nimport made.c", "b.py": "import made.c", "c.py": "", "d.py": ""}
    assert code.lone(_edges(tmp_path, files)) == ["made.b"]


def test_classes_of_one_name(tmp_path: Path) -> None:
    files = {
        "a.py": "class Limits: pass\nclass Own: pass",
        "in/b.py": "class Limits: pass\nclass Kept: pass",
        "in/c.py": "class Kept:\n    class Own: pass",
    }
    modules = code.modules(_package(tmp_path, files))
    assert code.doubled_classes(modules) == {"Kept": ["made.in.b", "made.in.c"], "Limits": ["made.a", "made.in.b"]}
    assert code.doubled_classes(modules, "made.in") == {"Kept": ["made.in.b", "made.in.c"]}


PAGE = """\
# Architecture
worker is not explained here
## The words (glossary)
| `worker` | one channel |
### of queues
Queue types: which there are.
## Invariants
settler is not explained here either
"""


def test_names_are_looked_for_in_the_glossary_alone(tmp_path: Path) -> None:
    names = ["worker", "settler", "queue_types", "work", "words"]
    modules = code.modules(_package(tmp_path, {f"{name}.py": "" for name in names}))
    assert code.unexplained(modules, "made", PAGE) == ["made.settler", "made.words", "made.work"]
    assert len(code.unexplained(modules, "made", "")) == len(names)


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


def test_what_a_library_calls_back_is_a_move_of_who_called_the_library(made: tuple[Any, Path]) -> None:
    a, package = made
    with Trace(package) as trace:
        a.run(lambda own: own())
    assert (trace.way().moves, trace.way().calls) == (2, 9), "the lambda counts: it is no stage now"


def test_the_numbers_of_a_letter_are_the_same_each_time() -> None:
    first, second = measure(), measure()
    assert first == second
    for ways in first.values():
        assert tuple(ways) == WAYS
        assert all("broker/consumer.py" in way.files and "broker/publisher.py" in way.files for way in ways.values())
        assert ways["first"].calls > ways["short"].calls >= ways["shape"].calls > ways["run"].calls / 10
        assert ways["shape"].sent_bytes >= ways["run"].sent_bytes > 0


WORSE = shape.Row("first_calls", "calls", 12)


@pytest.mark.parametrize(
    ("row", "baseline", "missed", "worse"),
    [
        (WORSE, {"python": "3.11", "numbers": {"first_calls": 11}}, True, True),
        (WORSE, {"python": "3.11", "numbers": {"first_calls": 12}}, False, False),
        (WORSE, {"python": "3.12", "numbers": {"first_calls": 11}}, False, False),
        (WORSE, {}, False, False),
        (shape.Row("circles", "circles", 2, 0), {"numbers": {"circles": 3}}, True, False),
        (shape.Row("circles", "circles", 0, 0), {"numbers": {}}, False, False),
        (shape.Row("upward", "upward", 9), {"numbers": {"upward": 8}}, False, True),
        (shape.Row("small", "grows with what the program does", 9), {"numbers": {"small": 8}}, False, False),
    ],
)
def test_goals_and_the_baseline(row: shape.Row, baseline: dict[str, Any], missed: bool, worse: bool) -> None:  # noqa: FBT001 - a table
    (compared,) = shape.beside([row], baseline, python="3.11")
    assert (compared.is_missed, compared.is_worse) == (missed, worse)


def test_the_table_names_what_is_missed() -> None:
    rows = [shape.Row("circles", "in circles", 2, 0, 1, ["a ↔ b"]), shape.Row("lines", "lines", 5, 9, 7)]
    lines = shape.table(rows, details=True).splitlines()
    assert lines[1].split() == ["in", "circles", "2", "0", "1", "missed"]
    assert lines[2].strip() == "a ↔ b"
    assert lines[3].split() == ["lines", "5", "9", "7"]
    assert lines[4] == "1 goals are missed; worse than the baseline: in circles"


def test_of_several_letters_the_worst_counts() -> None:
    first, second = Way(("service/a.py", "core/b.py"), 3, 10), Way(("service/a.py",), 4, 9)
    rows = {
        row.key: row.now
        for row in shape.way_rows({"one": dict.fromkeys(WAYS, first), "two": dict.fromkeys(WAYS, second)})
    }
    assert {key: rows[f"short_{key}"] for key in ("files", "service", "moves", "calls")} == {
        "files": 2, "service": 1, "moves": 4, "calls": 10,
    }  # fmt: skip


@pytest.mark.slow
def test_the_baseline_has_every_number() -> None:
    layers = shape.contract(shape.ROOT / "pyproject.toml")
    rows = [*shape.code_rows(shape.PACKAGE, "", layers), *shape.way_rows(measure())]
    assert {row.key for row in rows} == json.loads(shape.BASELINE.read_text(encoding="utf-8"))["numbers"].keys()
