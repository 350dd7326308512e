"""The shape of the package, in numbers beside their goals: `make shape`. No broker; a tree has the same numbers always.

    PYTHONPATH=. python -m tools.shape.run [--json] [--details] [--check] [--no-worse] [--costs] [--write]

Of all numbers less is better. Goals are those of docs/decisions/0068-the-shape-is-measured.md; what has none is only
told. The baseline is tools/shape/baseline.json, which `--write` writes.
Exit: 0 told · 1 `--check`: a goal is missed; `--no-worse`: a number is worse than in the baseline.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tools.shape import source
from tools.shape.letter_path import LETTERS, RUN, Way, as_data, measure

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "dlx_router"
BASELINE: Final = ROOT / "tools" / "shape" / "baseline.json"
GLOSSARY: Final = ROOT / "docs" / "architecture.md"
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
SERVICE: Final = "dlx_router.service"
SERVICE_LAYERS: Final = (
    ("app",), ("upkeep",), ("vhost",), ("leases",), ("redrive", "sources"), ("dispatch",), ("inflight",),
)  # fmt: skip
LINES: Final = 38_431  # `wc -l` over dlx_router/**/*.py at ece0e03; fewer is the goal
SMALL, LARGE = 60, 300
FIRST: Final = (16, 45)  # files, moves
SHORT: Final = (12, 25)
# They grow with what the program does; told, with a goal where there is one, and never a reason to fail.
COSTS: Final = ("_calls", "_bytes")
GROWING: Final = frozenset({"lines", "small", "lone", "small_lone", "large", "doubled"})


@dataclass(frozen=True)
class Row:
    """One number. `goal`: the most that is good; None: there is none."""

    key: str
    says: str
    now: int
    goal: int | None = None
    before: int | None = None
    names: Sequence[str] = ()

    @property
    def is_missed(self) -> bool:
        """Whether there is a goal, and it is not reached."""
        return self.goal is not None and self.now > self.goal

    @property
    def is_worse(self) -> bool:
        """Whether it was better in the baseline, and has no reason to grow."""
        return self.before is not None and self.now > self.before and self.key not in GROWING


def code_rows(package: Path, page: str, contract: source.Layers) -> Iterator[Row]:
    """What the source says. `page`: where the glossary is; `contract`: the layers of the package."""
    modules = source.modules(package)
    edges = source.imports(modules)
    round_, beside = source.circles(edges), source.sibling_circles(edges)
    yield Row("circles", "modules in import circles", sum(map(len, round_)), 0, names=_circles(round_))
    yield Row("siblings", "siblings in import circles", sum(map(len, beside)), 0, names=_circles(beside))
    held, inner = source.layering(edges, package.name, contract), source.layering(edges, SERVICE, SERVICE_LAYERS)
    yield Row("upward", "imports against the layers", len(held.wrong), 0, names=_arrows(held.wrong))
    yield Row("layers", "layers of service/ that are not there", len(inner.absent), 0, names=inner.absent)
    yield Row("loose", "modules of service/ in no layer", len(inner.loose), 0, names=inner.loose)
    yield Row("inner", "imports against the layers of service/", len(inner.wrong), 0, names=_arrows(inner.wrong))
    yield Row("lines", "product lines", sum(module.lines for module in modules.values()), LINES - 1)
    strange = source.unexplained(modules, SERVICE, page)
    yield Row("unexplained", "modules of service/ not in the glossary", len(strange), 0, names=strange)
    for key, where, goal in (("doubled_service", SERVICE, 0), ("doubled", package.name, None)):
        twice = source.doubled_classes(modules, where)
        lines = [f"{name}: {', '.join(homes)}" for name, homes in twice.items()]
        yield Row(key, f"class names defined twice in {where}", len(twice), goal, names=lines)
    yield from _sizes(modules, edges)


def _sizes(modules: Mapping[str, source.Module], edges: source.Edges) -> Iterator[Row]:
    files = {name: module for name, module in modules.items() if not module.is_package}
    small = [name for name, module in files.items() if module.lines < SMALL]
    lone = [name for name in source.lone(edges) if name in files]
    large = [name for name, module in files.items() if module.lines > LARGE]
    yield Row("small", f"modules under {SMALL} lines", len(small), names=small)
    yield Row("lone", "modules with exactly one importer", len(lone), names=lone)
    both = [name for name in lone if name in small]
    yield Row("small_lone", f"both: under {SMALL} lines, one importer", len(both), names=both)
    yield Row("large", f"modules over {LARGE} lines", len(large), names=large)


def way_rows(measurements: Mapping[str, Mapping[str, Way]]) -> Iterator[Row]:
    """What the way of a letter takes, of the letters that were measured the worst."""
    for way, files, moves in (("first", *FIRST), ("short", *SHORT), ("shape", None, None)):
        every = [ways[way] for ways in measurements.values()]
        touched = max((cost.files for cost in every), key=len)
        inside = max(cost.within("service") for cost in every)
        yield Row(f"{way}_files", f"{way} way: files", len(touched), files, names=touched)
        yield Row(f"{way}_service", f"{way} way: files of service/ among them", inside)
        yield Row(f"{way}_moves", f"{way} way: moves between files", max(cost.moves for cost in every), moves)
        yield Row(f"{way}_calls", f"{way} way: calls a letter", max(cost.calls for cost in every))
    yield from cost_rows(measurements)


def cost_rows(measurements: Mapping[str, Mapping[str, Way]]) -> Iterator[Row]:
    """What a letter that comes alone, and a read of many, cost beside calls: nobody may lose a microsecond unseen."""
    together = [ways["run"] for ways in measurements.values()]
    yield Row("run_files", f"a read of {RUN}: files", max(len(cost.files) for cost in together))
    yield Row("run_calls", f"a read of {RUN}: calls", max(cost.calls for cost in together))
    yield Row("run_bytes", f"a read of {RUN}: bytes sent a letter", max(cost.sent_bytes for cost in together))
    yield Row(
        "shape_bytes", "shape way: bytes sent a letter", max(ways["shape"].sent_bytes for ways in measurements.values())
    )


def beside(rows: Sequence[Row], baseline: Mapping[str, Any], python: str = PYTHON) -> list[Row]:
    """The rows with the baseline's numbers. Calls must not rise; another Python makes others, and is not compared."""
    return [_beside(row, baseline, python) for row in rows]


def _beside(row: Row, baseline: Mapping[str, Any], python: str) -> Row:
    is_calls = row.key.endswith(COSTS)
    before = None if is_calls and baseline.get("python") != python else baseline.get("numbers", {}).get(row.key)
    goal = before if is_calls else row.goal
    return Row(row.key, row.says, row.now, goal, before, row.names)


def table(rows: Sequence[Row], *, details: bool = False) -> str:
    """The numbers as people read them."""
    lines = [f"{'':<46} {'now':>7} {'goal':>7} {'before':>7}"]
    for row in rows:
        mark = "missed" if row.is_missed else ""
        lines.append(f"{row.says:<46} {row.now:>7} {_shown(row.goal):>7} {_shown(row.before):>7} {mark}".rstrip())
        if details:
            lines += [f"    {name}" for name in row.names]
    missed, worse = sum(row.is_missed for row in rows), [row.says for row in rows if row.is_worse]
    lines.append(f"{missed} goals are missed; worse than the baseline: {'; '.join(worse) or 'nothing'}")
    return "\n".join(lines)


def _shown(number: int | None) -> str:
    return "" if number is None else str(number)


def _circles(circles: Sequence[Sequence[str]]) -> list[str]:
    return [" ↔ ".join(circle) for circle in circles]


def _arrows(edges: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{importer} → {imported}" for importer, imported in edges]


def contract(pyproject: Path) -> source.Layers:
    """The layers of the package as import-linter holds them."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(entry["layers"] for entry in contracts if entry["type"] == "layers")
    return [[name.strip() for name in line.split("|")] for line in layers]


def _baseline() -> dict[str, Any]:
    return dict(json.loads(BASELINE.read_text(encoding="utf-8"))) if BASELINE.exists() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, tell, and say whether it is good enough."""
    parser = argparse.ArgumentParser(description="The shape of the package, in numbers beside their goals.")
    parser.add_argument("--json", action="store_true", help="for machines: rows, and each letter's ways")
    parser.add_argument("--details", action="store_true", help="the names behind each number")
    parser.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    parser.add_argument("--no-worse", action="store_true", help="exit 1 where a number is worse than in the baseline")
    parser.add_argument("--write", action="store_true", help="these numbers are the baseline from now on")
    parser.add_argument("--costs", action="store_true", help="calls and bytes alone")
    asked = parser.parse_args(arguments)
    page = GLOSSARY.read_text(encoding="utf-8") if GLOSSARY.exists() else ""
    ways = measure()
    rows = [*code_rows(PACKAGE, page, contract(ROOT / "pyproject.toml")), *way_rows(ways)]
    if asked.write:
        stored = {"python": PYTHON, "numbers": {row.key: row.now for row in rows}}
        BASELINE.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    rows = [row for row in beside(rows, _baseline()) if row.key.endswith(COSTS) or not asked.costs]
    if asked.json:
        print(json.dumps({"python": PYTHON, "rows": [asdict(row) for row in rows], "ways": as_data(ways)}, indent=2))
    else:
        print(table(rows, details=asked.details))
        print(f"Letters: {', '.join(LETTERS)}; the worse of them counts. Python {PYTHON}.")
    failed = (asked.check and any(row.is_missed for row in rows)) or (
        asked.no_worse and any(row.is_worse for row in rows)
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
