"""Rules of CONTRIBUTING.md that hold for tests."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from dlx_router.config.language.keys import DEFINITION
from tests.rules.source import Source, called, sources

# What a test replaces in the process it runs in, other than a constant or a clock, and why.
REPLACED: Final = {
    "BlockingConnection": "pika's, remembered, so that the test can close what a page opens",
    "Session": "nothing of it may begin",
    "Topology": "the true one, waiting where the test wants it",
    "folded": "the true one, killed where the test wants it",
    "_filter": "a broker without its feature flag, which none of ours is",
    "_most_bytes": "bounds made small, so that few letters reach them",
    "now_ms": "a clock",
    "start": "of a consumer: the true one, later",
}
CLOCKS: Final = {"time"}
WORDS: Final = 3


def _replaced(source: Source) -> Iterator[str]:
    for call in source.calls():
        if called(call).endswith("monkeypatch.setattr"):
            named = next(arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
            yield named.rpartition(".")[2]


def test_there_are_no_mocks() -> None:
    """A stand-in is a class of ours that answers as the real thing; nothing answers whatever it is asked."""
    wanted = [
        (source.name, module)
        for source in sources("tests")
        for module, name in source.imports()
        if "mock" in {*module.split("."), name}
    ]
    assert wanted == []


def test_constants_and_clocks_alone_are_replaced() -> None:
    replaced = {
        name for source in sources("tests") for name in _replaced(source) if not (name.isupper() or name in CLOCKS)
    }
    assert replaced == {*REPLACED}, "let the code take it as an argument, or say here why not"


def test_nobody_sleeps_to_wait_for_something() -> None:
    """`eventually`, `consistently`, `soon`, or a loop that looks; a sleep that is none of these says what it is."""
    silent = []
    for source in sources("tests"):
        looking = {id(node) for loop in source.nodes if isinstance(loop, ast.While) for node in ast.walk(loop)}
        silent += [
            f"{source.name}:{call.lineno}"
            for call in source.calls()
            if called(call).rpartition(".")[2] == "sleep"
            and id(call) not in looking
            and [ast.unparse(arg) for arg in call.args] != ["0"]
            and "  # " not in source.lines[call.lineno - 1]
        ]
    assert silent == []


def test_chance_has_a_seed() -> None:
    """A fixed one, or a drawn one that is shown; Hypothesis prints its own."""
    loose, silent = [], []
    for source in sources("tests", "tools"):
        drawn = [source.lines[call.lineno - 1] for call in source.calls() if _is_drawn(call)]
        drawn = [line for line in drawn if not re.search(r"\bport\b", line)]
        loose += [(source.name, line) for line in drawn if not re.search(r"(?i)seed", line)]
        shown = re.search(r"(?i)(print|note|reproduce).*seed|seed=", "\n".join(source.lines))
        silent += [source.name] if drawn and not shown else []
    assert (loose, silent) == ([], [])


def _is_drawn(call: ast.Call) -> bool:
    """From no seed."""
    name = called(call)
    return bool(re.fullmatch(r"random\.[a-z]\w*", name)) or (name in {"Random", "random.Random"} and not call.args)


def test_the_name_of_a_test_is_a_sentence() -> None:
    """Or the policy key that it is about."""
    keys = {f"test_{key.replace('-', '_')}" for key in DEFINITION}
    short = [
        f"{source.name}::{function.name}"
        for source in sources("tests")
        for function in source.functions()
        if re.fullmatch(rf"test(_[^_]+){{1,{WORDS - 1}}}", function.name) and function.name not in keys
    ]
    assert short == []
