"""Where in a JSON file something stands: found by reading it again as YAML, whose tree knows lines.

That is slow; so nobody pays for it whose file is sound.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from dlx_router.config.dialects.import_result import Carried, ImportRefused, Parse
from dlx_router.config.findings import Report
from dlx_router.config.language import yaml_tree
from dlx_router.config.language.yaml_tree import Items, Node, Scalar

LARGEST_BYTES: Final = 4 << 20  # a larger file takes seconds; its objects are named in any case
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # half a character: JSON has it, YAML has not


class _Eye:
    """The line of the object that was looked at last."""

    def __init__(self) -> None:
        self.line = 1


class _Placed(dict[str, Any]):
    """An object that knows its line, and tells the eye when somebody looks."""

    line: int
    eye: _Eye

    def __getitem__(self, key: str) -> Any:
        self.eye.line = self.line
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.eye.line = self.line
        return super().get(key, default)


def lines_of(read: Callable[[bytes, Parse], Carried], data: bytes) -> list[int]:
    """The line of each policy that this reader makes of the file; [] where that is not known."""
    try:
        return [] if len(data) > LARGEST_BYTES else read(data, lambda text: _placed(_tree(text), _Eye())).lines
    except (ImportRefused, ValueError):
        return []


def line_of(read: Callable[[bytes, Parse], Carried], data: bytes) -> int:
    """The line, from 1, of the object for which this reader refuses the file; 1 where nobody can say."""
    if len(data) > LARGEST_BYTES:
        return 1
    eye = _Eye()
    try:
        read(data, lambda text: _placed(_tree(text), eye))
    except ImportRefused as error:
        return error.near.line if isinstance(error.near, _Placed) else eye.line
    except ValueError:  # said already, by who read it first
        return 1
    return 1


def _tree(data: bytes) -> Node:
    tree = yaml_tree.tree(_SURROGATE.sub("?", data.decode("utf-8-sig")), Report(""))
    if tree is None:
        raise ValueError
    return tree


def _placed(node: Node, eye: _Eye) -> Any:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [_placed(item, eye) for item in node.items]
    placed = _Placed({key.text: _placed(value, eye) for key, value in node.pairs})
    placed.line, placed.eye = node.line, eye
    return placed
