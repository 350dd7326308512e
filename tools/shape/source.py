"""What the source of a package says of its shape: its lines, who imports whom, circles, layers, names used twice.

Nothing is imported: the files are parsed. Imports inside functions and those for the type checker count as all others,
because whoever reads the code follows them too.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

Edges = Mapping[str, frozenset[str]]
Layers = Sequence[Sequence[str]]
_HEADING: Final = re.compile(r"^(#+)\s+(.*)$")
_EXPLAINS: Final = re.compile(r"\b(glossary|words)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its lines (as `wc -l` counts them) and its syntax."""

    name: str
    is_package: bool
    lines: int
    tree: ast.Module

    @property
    def stem(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


def modules(package: Path) -> dict[str, Module]:
    """All modules of the package in this folder, by name."""
    parsed = (_module(path, package) for path in sorted(package.rglob("*.py")))
    return {module.name: module for module in parsed}


def _module(path: Path, package: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, is_package, text.count("\n"), ast.parse(text, str(path)))


# -- imports -----------------------------------------------------------------------------------------------------------


def imports(known: Mapping[str, Module]) -> dict[str, frozenset[str]]:
    """Which modules of the same package each module imports."""
    return {name: frozenset(_imported(module, known)) - {name} for name, module in sorted(known.items())}


def _imported(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield inner
                elif base in known:
                    yield base


def _base(node: ast.ImportFrom, module: Module) -> str:
    """What stands behind `from`, without dots in front."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    up = node.level - 1 if module.is_package else node.level
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


def circles(edges: Edges) -> list[list[str]]:
    """Groups in which each reaches each other, the largest first (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for to in sorted(edges.get(name, ())):
            if to not in index:
                visit(to)
                low[name] = min(low[name], low[to])
            elif to in stack:
                low[name] = min(low[name], index[to])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                groups.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return sorted(groups, key=lambda group: (-len(group), group))


def sibling_circles(edges: Edges) -> list[list[str]]:
    """Circles among the children of each package, each child with all that it contains."""
    beside: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, targets in edges.items():
        for to in targets:
            above, child, other = _fork(name, to)
            if child and other:
                beside[above][f"{above}.{child}"].add(f"{above}.{other}")
    return [
        circle
        for above in sorted(beside)
        for circle in circles({name: frozenset(to) for name, to in beside[above].items()})
    ]


def _fork(name: str, other: str) -> tuple[str, str, str]:
    """The package that holds both, and its child on the way to each; "" where one of them is that package itself."""
    left, right = name.split("."), other.split(".")
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    return ".".join(left[:at]), ".".join(left[at : at + 1]), ".".join(right[at : at + 1])


@dataclass(frozen=True)
class Layering:
    """How a package keeps its layers: which are not there, children in none, and imports that point up or aside."""

    absent: list[str]
    loose: list[str]
    wrong: list[tuple[str, str]]


def layering(edges: Edges, package: str, layers: Layers) -> Layering:
    """`layers`: names of children, the highest first; those of one layer must not import each other."""
    rank = {name: at for at, names in enumerate(layers) for name in names}
    children = {name[len(package) + 1 :].split(".")[0] for name in edges if name.startswith(f"{package}.")}
    wrong = []
    for name, targets in edges.items():
        for to in targets:
            above, child, other = _fork(name, to)
            if above == package and child in rank and other in rank and rank[other] <= rank[child]:
                wrong.append((name, to))
    return Layering(sorted(rank.keys() - children), sorted(children - rank.keys()), sorted(wrong))


def lone(edges: Edges) -> list[str]:
    """Modules that exactly one other imports."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in edges.items():
        for to in targets:
            importers[to].add(name)
    return sorted(name for name, by in importers.items() if len(by) == 1)


# -- names -------------------------------------------------------------------------------------------------------------


def doubled_classes(known: Mapping[str, Module], within: str = "") -> dict[str, list[str]]:
    """Names of classes that two modules or more define, and which; `within`: look at this package only."""
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for name, module in known.items():
        if not within or name == within or name.startswith(f"{within}."):
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    homes[node.name].add(name)
    return {name: sorted(where) for name, where in sorted(homes.items()) if len(where) > 1}


def glossary(page: str) -> str:
    """The part of a Markdown page that explains words: under a heading that says so, to the next of its rank."""
    kept: list[str] = []
    rank = 0  # of the heading that we are under
    for line in page.splitlines():
        heading = _HEADING.match(line)
        if heading and (not rank or len(heading[1]) <= rank):
            rank = len(heading[1]) if _EXPLAINS.search(heading[2]) else 0
        elif rank:
            kept.append(line)
    return "\n".join(kept)


def unexplained(known: Mapping[str, Module], package: str, page: str) -> list[str]:
    """Modules and folders of a package whose name does not stand in the glossary of this page."""
    text = glossary(page).lower()
    names = (module for name, module in known.items() if name.startswith(f"{package}."))
    return sorted(module.name for module in names if not _says(text, module.stem))


def _says(text: str, stem: str) -> bool:
    """`queue_types` is explained by itself, or as "queue types" or "queue-types"."""
    return re.search(rf"(?<![a-z0-9]){'[-_ ]'.join(map(re.escape, stem.split('_')))}(?![a-z0-9])", text) is not None
