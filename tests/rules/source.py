"""The Python of the tree as the tests of its rules read it: parsed, never imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class Source:
    """One file: its path in the tree, its lines, its syntax."""

    name: str
    lines: tuple[str, ...]
    tree: ast.Module

    @property
    def stem(self) -> str:
        """Its name without folder and ending."""
        return self.name.rpartition("/")[2].removesuffix(".py")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax."""
        return tuple(ast.walk(self.tree))

    def functions(self) -> Iterator[Function]:
        """All of them, inner ones and methods too."""
        return (node for node in self.nodes if isinstance(node, Function))

    def calls(self) -> Iterator[ast.Call]:
        """All calls."""
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def imports(self, *, at_the_top: bool = False) -> Iterator[tuple[str, str]]:
        """Module and name of each import (name "" for a module); `at_the_top`: those that run with it alone."""
        for node in self.tree.body if at_the_top else self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", alias.name) for alias in node.names)


def sources(*folders: str) -> tuple[Source, ...]:
    """All files of these folders."""
    return tuple(_source(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def _source(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(str(path.relative_to(ROOT)), tuple(text.split("\n")), ast.parse(text, str(path)))


def called(call: ast.Call) -> str:
    """What is called, by its dotted name; what comes out of an expression has `()` there."""
    return dotted(call.func)


def dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; `().c` where a is no name."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "()"
