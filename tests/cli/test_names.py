"""Shell completion of names: those that the router knows, none that a shell would evaluate, and silence otherwise."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.cli.names import SAFE
from tests.cli import recorded
from tests.cli.recorded import DRY, GRAVE, GROUP, LETTER, LONG, OTHER, QUEUE, STOPPED, TASK

ROOT: Final = Path(__file__).parents[2]
HOSTILE: Final = (
    "$(touch owned)", "`touch owned`", "a;touch owned", "a b", "a'b", 'a"b', "--yes", "-y", "a\nb", "a|b", "a&b", "*",
    "~", "a(b", "a:b", "a\\b", "", "é\u202eb",
)  # fmt: skip


def queues(*names: str) -> dict[str, Any]:
    failed = [
        {**recorded.QUEUES["failed"][0], "failed_queue": name, "states": {"$(x)": 1, "dead": 1}} for name in names
    ]
    lying = [{**recorded.QUEUES["lying"][0], "queue": name, "routing_key": name} for name in names]
    return {"failed": failed, "lying": lying, "signatures": {}}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with recorded.router() as url:
        yield url


def offered(line: str, url: str, shell: str = "bash", **env: str) -> subprocess.CompletedProcess[str]:
    """What the program says to a shell that completes the line."""
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    env = {**others, **words, "_DLX_ROUTER_COMPLETE": f"complete_{shell}", "DLX_ROUTER_API_URL": url, **env}
    argv = [sys.executable, "-m", "dlx_router"]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("redrive start ", [GRAVE]),
        ("redrive park DLQ.", [GRAVE]),
        ("discard ", [GRAVE]),
        ("letters export --from ", [GRAVE]),
        ("edit x --queue ", [GRAVE]),
        ("letters list --queue ", [QUEUE, LONG]),
        ("letters list --queue pay", [LONG]),
        ("policy explain or", [QUEUE]),
        ("groups --queue or", [QUEUE]),
        ("letters list --group ", [GROUP]),
        ("groups show g", [GROUP]),
        ("groups resolve ", [GROUP]),
        ("redrive start q --group ", [GROUP]),
        ("redrive show ", [TASK, DRY["id"], STOPPED["id"]]),
        ("redrive pause 5", [TASK]),
        ("redrive resume 0f", [STOPPED["id"]]),
        ("redrive cancel --vhost / ", [TASK, DRY["id"], STOPPED["id"]]),
        ("letters show ", [LETTER, OTHER]),
        ("redrive start q --id 1e", [LETTER]),
        ("letters list --policy ", ["orders"]),
        ("redrive list --vhost s", ["shop"]),
    ],
)
def test_names_are_completed(line: str, names: list[str], address: str) -> None:
    done = offered(f"dlx-router {line}", address)
    assert (done.stdout.split(), done.stderr) == (names, "")


def test_the_router_that_is_named_on_the_line_is_asked(address: str) -> None:
    done = offered(f"dlx-router redrive show --api-url {address} 5", "http://127.0.0.1:1")
    assert done.stdout.split() == [TASK]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_no_name_is_offered_that_a_shell_would_evaluate(shell: str) -> None:
    with recorded.router({"/queues": queues(*HOSTILE, "fine.queue")}) as address:
        for line in ("dlx-router redrive start ", "dlx-router letters list --queue "):
            done = offered(line, address, shell, _TYPER_COMPLETE_FISH_ACTION="get-args")
            assert ("fine.queue" in done.stdout, done.stderr) == (True, "")
            assert not any(sign in done.stdout for sign in ("$", "`", "touch", "owned", "--yes", "é"))
    assert [name for name in HOSTILE if SAFE.fullmatch(name)] == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://192.0.2.1:9719"])
def test_where_no_router_answers_nothing_is_offered_or_said_and_nobody_waits(url: str) -> None:
    began = time.monotonic()
    done = offered("dlx-router redrive start ", url)
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert time.monotonic() - began < 100


@pytest.mark.slow
def test_a_router_that_answers_otherwise_is_no_error() -> None:
    answers: tuple[Any, ...] = ({"failed": [1, {"states": 3}], "lying": None}, [], "text", {"lying": [{"queue": 5}]})
    for answer in answers:
        with recorded.router({"/queues": answer}) as address:
            done = offered("dlx-router redrive start ", address)
            assert (done.stdout.strip(), "Traceback" in done.stderr) == ("", False)
