"""Compare the size of the product with its budget: `make budget`.

    python -m tools.budget [--lower]

tools/budget.txt holds one row per package: lines and modules. A change may only lower a number; `--lower` writes the
present sizes where they are below the budget.
Exit: 0 within the budget · 1 a package has more lines or modules than its budget.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = ROOT / "tools" / "budget.txt"
SUM: Final = "sum"
# Lines count everywhere; modules count in the product only.
TREES: Final = ("tests", "tools")


class Size(NamedTuple):
    """Lines and modules (`*.py`) of a package."""

    lines: int
    modules: int


def measure(root: Path = ROOT) -> dict[str, Size]:
    """Return the size of each package of the product, of the product (`sum`), of the tests and of the tools."""
    product = root / "dlx_router"
    folders = sorted(path for path in product.iterdir() if path.is_dir() and any(path.rglob("*.py")))
    sizes = {folder.name: _size(folder) for folder in folders}
    return sizes | {SUM: _size(product)} | {f"{name}/": _size(root / name) for name in TREES}


def _size(folder: Path) -> Size:
    files = list(folder.rglob("*.py"))
    return Size(sum(path.read_bytes().count(b"\n") for path in files), len(files))


def read(text: str) -> dict[str, Size]:
    """Return the budget of each package from the text of the table."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: Size(int(lines), int(modules)) for name, lines, modules in rows}


def write(budget: Mapping[str, Size]) -> str:
    """Return the text of the table."""
    rows = [f"{name:<14} {size.lines:>7} {size.modules:>5}" for name, size in budget.items()]
    return "\n".join(["# package       lines modules: a change may only lower them (make budget)", *rows]) + "\n"


def excesses(sizes: Mapping[str, Size], budget: Mapping[str, Size]) -> list[str]:
    """Return one sentence for each package above its budget; a package without a row has no budget at all."""
    return [
        f"{name}: {size.lines} lines in {size.modules} modules, budget {limit.lines} in {limit.modules}"
        for name, size in sizes.items()
        for limit in [budget.get(name, Size(0, 0))]
        if size.lines > limit.lines or (size.modules > limit.modules and not name.endswith("/"))
    ]


def lowered(sizes: Mapping[str, Size], budget: Mapping[str, Size]) -> dict[str, Size]:
    """Return the budget with each number lowered to the present size; rows of removed packages are dropped."""
    return {name: Size(*map(min, size, budget.get(name, size))) for name, size in sizes.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description="Compare the size of the product with its budget.")
    parser.add_argument("--lower", action="store_true", help="lower the budget to the present sizes")
    options = parser.parse_args(arguments)
    sizes = measure()
    budget = read(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    if options.lower:
        budget = lowered(sizes, budget)
        TABLE.write_text(write(budget), encoding="utf-8")
    for name, size in sizes.items():
        limit = budget.get(name, Size(0, 0))
        print(f"{name:<14} {size.lines:>7} of {limit.lines:>7} lines {size.modules:>4} of {limit.modules:>4} modules")
    problems = excesses(sizes, budget)
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
