"""The help of every command fits a terminal of 80 columns, and nothing of it is cut."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from typer.core import TyperGroup

from dlx_router.cli.main import app
from tests.cli.test_cli import Done, dlx_router

__all__ = ["dlx_router"]
ROOT: Final = Path(__file__).parents[2]


def paths(command: Any = None, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, by its words."""
    command = command or typer.main.get_command(app)
    yield before
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from paths(inner, (*before, name))


EVERY: Final = [pytest.param(path, id=" ".join(path) or "dlx-router") for path in paths()]


@pytest.mark.parametrize("path", EVERY)
def test_nothing_of_a_help_is_cut(path: tuple[str, ...], dlx_router: Callable[..., Done]) -> None:
    done = dlx_router(*path, "--help", COLUMNS="80")
    assert done.returncode == 0
    assert re.findall(r"\w(?:…|\.\.\.)", done.stdout.replace("[ARGS]...", "").replace("g1-…", "")) == []
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_a_group_alone_shows_its_help() -> None:
    argv = [sys.executable, "-m", "dlx_router", "redrive"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env={**os.environ}, check=False)
    assert (done.returncode, "Usage: dlx-router redrive" in done.stdout + done.stderr) == (2, True)
