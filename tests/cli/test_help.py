"""Help: every one ends with examples, and each is understood by the very parser that it is about."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from typer.core import TyperGroup

from dlx_router.cli import run
from dlx_router.cli.examples import EXAMPLES
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


def parsed(words: list[str]) -> str:
    """The command that the program's own parser makes of the words; whatever is wrong with them is raised."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("dlx-router", list(words))
    while isinstance(command, TyperGroup) and (context._protected_args or context.args):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        if name == "run":
            command, rest = typer.main.get_command(run._app), words[1:]
        context = command.make_context(name, rest, parent=context)
    assert context.args == [], "what nobody asked for"
    return str(context.command_path)


def test_every_help_has_examples() -> None:
    assert {" ".join(path) for path in paths()} == {*EXAMPLES}


@pytest.mark.parametrize("path", sorted(EXAMPLES), ids=lambda path: path or "dlx-router")
def test_an_example_is_understood_and_is_about_its_command(path: str) -> None:
    for line in EXAMPLES[path]:
        program, *words = shlex.split(line)
        assert program == "dlx-router"
        command = parsed(words)
        assert f"{command} ".startswith(f"dlx-router {path}".strip() + " " if path else "dlx-router "), line


def test_the_parser_of_this_test_refuses_what_is_wrong() -> None:
    for line in (
        "letters lst",
        "letters list --quue a",
        "redrive start",
        "run --polices p",
        "policy explain q --reason",
    ):
        with pytest.raises(Exception, match=r"."):
            parsed(shlex.split(line))


@pytest.mark.parametrize("path", EVERY)
def test_nothing_of_a_help_is_cut_and_its_examples_stand_at_its_end(
    path: tuple[str, ...], dlx_router: Callable[..., Done]
) -> None:
    done = dlx_router(*path, "--help", COLUMNS="80")
    assert done.returncode == 0
    assert re.findall(r"\w(?:…|\.\.\.)", done.stdout.replace("[ARGS]...", "").replace("g1-…", "")) == []
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    examples = re.sub(r" \\\n\s+", " ", done.stdout.partition("Examples:\n")[2])
    assert [line.strip() for line in examples.splitlines() if line.strip()] == [*EXAMPLES[" ".join(path)]]


def test_a_group_alone_shows_its_help() -> None:
    argv = [sys.executable, "-m", "dlx_router", "redrive"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env={**os.environ}, check=False)
    assert (done.returncode, "dlx-router redrive list" in done.stdout + done.stderr) == (2, True)
