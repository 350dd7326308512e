"""What there is to be named: settings, metrics, commands and codes, as the code has them."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from typer.core import TyperGroup

from dlx_router.cli.main import program
from dlx_router.config.environment.settings import Settings, option, variable
from dlx_router.telemetry.metrics import Metrics
from tests.docs.pages import ROOT

_PROGRAM: Final = "dlx-router"
_SOURCES: Final = ("dlx_router", "tools", "tests")


@cache
def sources() -> str:
    """All Python of the tree, but for the tests of the docs, and the Makefile."""
    files = (
        path
        for folder in _SOURCES
        for path in (ROOT / folder).rglob("*.py")
        if Path(__file__).parent not in path.parents
    )
    return "\n".join(path.read_text(encoding="utf-8") for path in (*files, ROOT / "Makefile"))


@cache
def variables() -> frozenset[str]:
    """Every variable that is read: the settings, and those of commands and tests."""
    return frozenset({*map(variable, Settings.model_fields), *re.findall(r"DLX_ROUTER_[A-Z][A-Z_]*[A-Z]", sources())})


@cache
def metrics() -> frozenset[str]:
    """Every name that /metrics shows, of families and of series."""
    names = set()
    for family in text_string_to_metric_families(Metrics().text().decode()):
        names |= {sample.name for sample in family.samples} | ({family.name} if family.type != "counter" else set())
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ())
        names |= {family.name + suffix for suffix in suffixes}
    return frozenset(names)


@cache
def make_targets() -> frozenset[str]:
    """What `make` can be asked for."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@cache
def codes() -> frozenset[str]:
    """Codes of findings and refusals."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "dlx_router").rglob("*.py"))
    return frozenset(re.findall(r"\bDLX[0-9]{3}\b", text))


def wrong_command(line: str) -> str:
    """What in a line that runs dlx-router does not exist; "" where all does, or where it runs something else."""
    words = _words(line)
    if _PROGRAM not in words[:1]:
        return ""
    command: Any = program()
    taken = 1
    while isinstance(command, TyperGroup) and taken < len(words) and re.fullmatch(r"[a-z][a-z-]*", words[taken]):
        if words[taken] not in command.commands:
            return f"{line!r}: there is no command {words[taken]}"
        command = command.commands[words[taken]]
        taken += 1
    known = _options(command)
    strange = [word for word in words[taken:] if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{line!r}: no option {', '.join(strange)}" if strange else ""


def _words(line: str) -> list[str]:
    """The words of the command that a line begins with, variables before it left out."""
    try:
        words = shlex.split(re.split(r" [|&;]| \d?>", line)[0], comments=True)
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
        words.pop(0)
    return words


def _options(command: Any) -> set[str]:  # typer brings a click of its own
    named = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    if command.name == "run":
        named |= {*map(option, Settings.model_fields), "--observe"}
    return named
