"""Everything that prints JSON prints JSON: it parses, and no text in it is Python's way to show a value."""

import ast
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pytest

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.cli import doctor, provisioning
from dlx_router.cli.doctor import Diagnosis, Level
from dlx_router.config.language.keys import DEFINITION
from dlx_router.core.names import Names
from dlx_router.provisioning.plan import plan
from dlx_router.provisioning.removal import Remains
from tests.cli import recorded
from tests.cli.recorded import DRY, GRAVE, GROUP, LETTER, QUEUE, STOPPED, TASK
from tests.cli.test_cli import Done, dlx_router

__all__ = ["dlx_router"]
COMMANDS: Final = (
    ["status"], ["queues"], ["groups"], ["groups", "show", GROUP], ["groups", "resolve", GROUP, "--yes"],
    ["groups", "ignore", GROUP, "--yes"], ["groups", "open", GROUP, "--yes"], ["letters", "list"],
    ["letters", "search", "x"], ["letters", "show", LETTER], ["redrive", "list"], ["redrive", "show", TASK],
    ["redrive", "show", STOPPED["id"]], ["redrive", "show", DRY["id"], "--follow"], ["redrive", "pause", TASK],
    ["redrive", "start", GRAVE, "--yes"], ["redrive", "park", GRAVE, "--yes"], ["discard", GRAVE, "--yes"],
    ["edit", LETTER, "--queue", GRAVE, "--header", "a=b", "--yes"], ["audits"],
)  # fmt: skip
LOCAL: Final = (
    ["policy", "explain", QUEUE, "--json"], ["policy", "explain", QUEUE, "--json", "--set", "--queue-type", "quorum"],
    ["policy", "explain", "nobody.names.this", "--json"], ["policy", "lint", "--format", "json"],
    ["policy", "schema"], ["permissions", "--format", "json"],
    ["permissions", "--for", "apply", "--format", "json"],
)  # fmt: skip


PYTHON: Final = re.compile(
    r"<[\w.]+( object)? at 0x|\b(mappingproxy|datetime|Decimal|PosixPath|frozenset)\(|[{,(] ?'[\w-]+': "
)


def texts(document: Any) -> Iterator[str]:
    """Every text in it, names of members too."""
    match document:
        case str():
            yield document
        case dict():
            yield from document
            for value in document.values():
                yield from texts(value)
        case list():
            for value in document:
                yield from texts(value)


def is_python(text: str) -> bool:
    """Whether it is how Python shows a value, and not how JSON writes it; or has such a value in it."""
    if PYTHON.search(text):
        return True
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    if not isinstance(value, dict | list | tuple | set | bytes | bool | None):
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def proved(printed: str) -> Any:
    """The document."""
    document = json.loads(printed)
    assert [text for text in texts(document) if is_python(text)] == []
    return document


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_that_asks_a_router_prints_json(words: list[str], dlx_router: Callable[..., Done]) -> None:
    with recorded.router() as address:
        done = dlx_router(*words, "--json", API_URL=address)
    assert done.returncode in {0, 1}, done.stderr
    proved(done.stdout)


@pytest.mark.parametrize("words", LOCAL, ids=" ".join)
def test_a_command_that_asks_nobody_prints_json(words: list[str], dlx_router: Callable[..., Done]) -> None:
    done = dlx_router(*words)
    assert done.returncode in {0, 1}, done.stderr
    proved(done.stdout)


def test_what_asks_a_broker_prints_json() -> None:
    from tests.cli.test_screens import policies  # noqa: PLC0415 - the screens are of the same things

    snapshot = Snapshot("/", (4, 3), (Standing(QUEUE, "quorum"), Standing("mails", "classic")))
    out = io.StringIO()
    with redirect_stdout(out):
        provisioning.print_plans(
            [plan(policies().policies, snapshot, Names(), frozenset())], as_json=True, taken=[None]
        )
    (vhost,) = proved(out.getvalue())["vhosts"]
    assert {step["what"] for step in vhost["steps"]} == {"exchange", "queue", "binding", "policy"}
    out = io.StringIO()
    with redirect_stdout(out):
        provisioning.print_removal([Remains("/", ("p",), (), ("q",), ("why",), (), ledger=True)], as_json=True)
    assert proved(out.getvalue())["vhosts"][0]["refused_because"] == ["why"]
    out = io.StringIO()
    with redirect_stdout(out):
        doctor.show([Diagnosis("alarms", Level.OK, "none")], as_json=True)
    assert proved(out.getvalue()) == [{"check": "alarms", "level": "ok", "found": "none", "fix": ""}]


def test_explain_as_json_says_what_the_text_says(dlx_router: Callable[..., Done]) -> None:
    whole = proved(dlx_router("policy", "explain", QUEUE, "--json").stdout)
    set_only = proved(dlx_router("policy", "explain", QUEUE, "--json", "--set").stdout)
    assert {row["key"] for row in whole["keys"]} == {*DEFINITION}
    assert set_only["keys"] == [row for row in whole["keys"] if row["set_by"] != "default"]
    assert 0 < len(set_only["keys"]) < len(whole["keys"])
    assert {key: whole[key] for key in ("queue", "vhost", "queue_type", "reason", "policies")} == {
        "queue": QUEUE, "vhost": "/", "queue_type": None, "reason": None, "policies": ["orders", "default"],
    }  # fmt: skip
    assert whole["waits"][0]["steps"][0] == {"first": 1, "last": 1, "base_ms": 5000, "least_ms": 4250, "most_ms": 5750}
    assert whole["ends"][0] == {"reason": "rejected", "tries": 4, "target": "default exchange, key orders.failed"}
    assert whole["on"][0]["reason"] == "expired"
    nothing = proved(dlx_router("policy", "explain", "a", "--json", "--policies", "docs/examples/sqs").stdout)
    assert (nothing["policies"], nothing["keys"], nothing["ends"]) == ([], [], [])
