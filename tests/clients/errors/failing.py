"""What handlers of these programs do with a message, by its text; and their set-up, a block of docs/clients.md.

Programs of this folder run on each Python that dlx-router-client is for; they are consumers as their users write them.
"""

import ast
import sys
from pathlib import Path
from typing import Any


class OutOfStock(Exception):
    """Of the application."""


class Hostile(Exception):
    """Its own text cannot be read."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def handle(text: str) -> None:
    """Fails as the message says."""
    if text.startswith("boom"):
        raise OutOfStock(f"item {text[4:].strip()}: none left")
    if text == "odd":
        raise KeyError("warehouse")
    if text == "hostile":
        raise Hostile


def told(*words: object) -> None:
    """A line for the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def set_up(block: str, queue: str, **names: Any) -> dict[str, Any]:
    """What a block of the page makes of these names; `await` in it makes it a coroutine, under "awaited"."""
    source = Path(block).read_text(encoding="utf-8").replace("orders.new", queue)
    code = compile(source, block, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names["awaited"] = eval(code, names)
    return names
