"""Rules of CONTRIBUTING.md that hold for all code. Each list of exceptions is exact: who mends one takes it out."""

import ast
import re
from collections import defaultdict
from typing import Final

import pytest

from tests.rules.source import ROOT, sources

EVERYWHERE: Final = ("dlx_router", "tools", "tests", "docs", "deploy")
REASONED: Final = (
    ("noqa", re.compile(r"# (?:ruff: )?noqa(?!: [A-Z]+\d+(?:, [A-Z]+\d+)* - \S)")),
    ("type: ignore", re.compile(r"# type: ignore(?!\[[a-z-]+(?:,[a-z-]+)*\]  # \S)")),
    ("nosec", re.compile(r"# nosec(?! B\d+ - \S)")),
)
VAGUE: Final = {"told", "said", "found", "one"}
# Waits for who works on the modules that call it.
VAGUE_STILL: Final = {("dlx_router/core/record.py", "told"), ("dlx_router/core/clienterrors.py", "told")}

# Public names of these modules.
VAGUE_VARIABLES: Final = {
    ("dlx_router/broker/declared.py", "found"),
    ("dlx_router/cli/doctor.py", "found"),
    ("dlx_router/cli/pipeline/run_advice.py", "found"),
    ("dlx_router/config/policy_files/loader.py", "told"),
    ("dlx_router/config/policytest.py", "found"),
    ("dlx_router/core/record.py", "told"),
    ("dlx_router/journal/encoding.py", "told"),
    ("dlx_router/service/inflight/decoder.py", "found"),
    ("dlx_router/service/inflight/routes.py", "told"),
    ("dlx_router/service/upkeep/webhooks.py", "told"),
    ("dlx_router/spark/doctor.py", "said"),
    ("dlx_router/spark/java.py", "found"),
}


@pytest.mark.parametrize(("what", "bare"), REASONED, ids=[row[0] for row in REASONED])
def test_whoever_switches_a_check_off_says_which_and_why(what: str, bare: re.Pattern[str]) -> None:
    places = [
        f"{source.name}:{number}"
        for source in sources(*EVERYWHERE)
        for number, line in enumerate(source.lines, 1)
        if what in line and not source.name.startswith("tests/rules/") and bare.search(line)
    ]
    assert places == [], "write `# noqa: CODE - reason`, `# type: ignore[code]  # reason`, `# nosec CODE - reason`"


def test_names_say_what_a_thing_is() -> None:
    """Of modules, classes, functions and methods."""
    vague = set()
    for source in sources("dlx_router"):
        nodes = [
            *source.tree.body,
            *(node for top in source.tree.body if isinstance(top, ast.ClassDef) for node in top.body),
        ]
        names = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
        names.add(source.stem)
        vague |= {(source.name, name) for name in names & VAGUE}
    assert vague == VAGUE_STILL


def test_variables_say_what_they_are() -> None:
    """A name that fits everything helps nobody who reads the line alone."""
    vague = {
        (source.name, name)
        for source in sources("dlx_router")
        for node in source.nodes
        if (name := node.id if isinstance(node, ast.Name) else getattr(node, "arg", None)) in VAGUE
        and isinstance(node, ast.Name | ast.arg)
    }
    assert vague == VAGUE_VARIABLES


def test_a_class_of_the_service_has_a_name_of_its_own() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources("dlx_router/service"):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(source.name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_groups_of_exceptions_are_taken_apart_by_hand() -> None:
    """`except*` wraps what is raised inside it, before Python 3.11.4."""
    assert [
        source.name for source in sources(*EVERYWHERE) for node in source.nodes if isinstance(node, ast.TryStar)
    ] == []


def test_a_policy_file_has_its_tests_beside_it() -> None:
    files = [path for path in (ROOT / "policies").glob("*.yaml") if not path.name.endswith(".test.yaml")]
    assert files
    assert [path.name for path in files if not path.with_suffix(".test.yaml").is_file()] == []
