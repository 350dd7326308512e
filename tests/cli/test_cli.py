"""The command line as people meet it: a process, its exit code, what it prints."""

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dlx_router.cli.main import COMMANDS, main, program
from dlx_router.config.environment.settings import Settings, default_text, option, variable

ROOT = Path(__file__).parents[2]
GOOD = "version: 1\npolicies: [{name: all, match: '#', definition: {redelivery-delay: 1s}}]\n"
BAD = "version: 1\npolicies: [{name: all, match: '#', definition: {redelivery-dealy: 1s}}]\n"
TIED = (
    "version: 1\npolicies:\n"
    "- {name: a, queue: q, definition: {discard: true}}\n- {name: b, queue: q, definition: {discard: false}}\n"
)


class Done(NamedTuple):
    """What a command printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def in_a_process(*arguments: str, **variables: str) -> Done:
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    named = {f"DLX_ROUTER_{key}": value for key, value in variables.items()}
    argv = [sys.executable, "-m", "dlx_router", *arguments]
    done = subprocess.run(
        argv, capture_output=True, encoding="utf-8", cwd=ROOT, env=others | named, check=False, timeout=120
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def dlx_router(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The same in this process, which is faster."""
    for name in [name for name in os.environ if name.startswith("DLX_ROUTER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(ROOT)

    def typed(*arguments: str, **variables: str) -> Done:
        for name, value in variables.items():
            monkeypatch.setenv(f"DLX_ROUTER_{name}" if name != "COLUMNS" else name, value)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return typed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        (GOOD, 0, "", "0 errors, 0 warnings, 1 policy in 1 file, revision "),
        (
            BAD,
            1,
            'p.yaml:2: error DLX005: unknown key "redelivery-dealy"; did you mean "redelivery-delay"?',
            "1 error, 0 warnings",
        ),
        (TIED, 1, "p.yaml:4: warning DLX101: ", "0 errors, 1 warning, 2 policies in 1 file"),
    ],
)
def test_lint_prints_findings_and_ends_with_one_if_there_are_some(
    text: str, code: int, out: str, err: str, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = in_a_process("policy", "lint", str(tmp_path))
    assert done.returncode == code
    assert out in done.stdout
    assert err in done.stderr


@pytest.mark.parametrize("form", ["json", "github", "text"])
@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1), (TIED, 1)])
def test_lint_ends_alike_in_every_format(
    form: str, text: str, code: int, tmp_path: Path, dlx_router: Callable[..., Done]
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = dlx_router("policy", "lint", str(tmp_path), "--format", form)
    assert done.returncode == code
    assert ("DLX" in done.stdout) == (code == 1)


TEST = "version: 1\ntests: [{name: one, letter: {queue: q}, expect: {decision: %s}}]\n"


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        (TEST % "retry", 0, "", "1 passed, 0 failed"),
        (TEST % "park", 1, "FAILED: one", "0 passed, 1 failed"),
        (TEST % "rerty", 1, "", "DLX007"),
        (None, 2, "", "no tests"),
    ],
)
def test_policy_test_shows_what_is_not_as_expected(
    text: str | None, code: int, out: str, err: str, tmp_path: Path, dlx_router: Callable[..., Done]
) -> None:
    (tmp_path / "p.yaml").write_text(GOOD)
    if text is not None:
        (tmp_path / "p.test.yaml").write_text(text)
    done = dlx_router("policy", "test", str(tmp_path))
    assert done.returncode == code
    assert out in done.stdout
    assert bool(out) == bool(done.stdout)
    assert err in done.stderr


def test_policy_schema_prints_the_schema_that_is_shipped(dlx_router: Callable[..., Done]) -> None:
    done = dlx_router("policy", "schema")
    assert done.returncode == 0
    assert done.stdout == (ROOT / "docs" / "policies.schema.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("policy", "lint", "/nowhere"),
        ("policy", "lint", "--format", "xml"),
        ("policy", "lint", "a", "b"),
        ("policy", "explain"),
        ("policy", "explain", "q", "--policies", "/nowhere"),
        ("policy", "explain", "q", "--reason", "boredom"),
        ("policy", "frobnicate"),
        ("frobnicate",),
        ("run", "--policies", "/nowhere"),
        ("run", "--http-port", "x"),
        ("run", "--no-such-option"),
        ("run", "stray"),
    ],
)
def test_wrong_use_and_unreadable_paths_end_with_two(
    arguments: tuple[str, ...], dlx_router: Callable[..., Done]
) -> None:
    done = dlx_router(*arguments)
    assert (done.returncode, bool(done.stderr + done.stdout)) == (2, True)


def test_run_refuses_policies_with_errors_and_shows_them(tmp_path: Path, dlx_router: Callable[..., Done]) -> None:
    (tmp_path / "p.yaml").write_text(BAD)
    done = dlx_router("run", POLICIES=str(tmp_path))
    assert done.returncode == 1
    assert "DLX005" in done.stderr


def test_run_refuses_a_policy_for_a_vhost_that_is_not_served(tmp_path: Path, dlx_router: Callable[..., Done]) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, match: a, vhost: shop}]\n")
    done = dlx_router("run", POLICIES=str(tmp_path))
    assert done.returncode == 1
    assert 'policy "a" is for vhost "shop", which is not served (/)' in done.stderr


def test_run_tells_every_bad_setting_and_no_secret(dlx_router: Callable[..., Done]) -> None:
    done = dlx_router("run", HTTP_PORT="x", AMQP_URL="amqp://u:hush@h:x", MANAGEMENT_URL="u:hush@h")
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "DLX_ROUTER_AMQP_URL", "DLX_ROUTER_MANAGEMENT_URL", "DLX_ROUTER_HTTP_PORT",
    ]  # fmt: skip
    assert "hush" not in done.stderr


def test_the_help_of_run_lists_every_setting_with_variable_and_default(dlx_router: Callable[..., Done]) -> None:
    text = "".join(dlx_router("run", "--help").stdout.split())
    for name in Settings.model_fields:
        assert option(name) in text
        assert f"[{variable(name)};" in text or f"[{variable(name)}]" in text
        assert "".join(default_text(name).split()) in text


def test_help_lists_the_commands_in_the_order_in_which_they_are_met(dlx_router: Callable[..., Done]) -> None:
    done = dlx_router("--help", COLUMNS="100")
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", done.stdout.partition("Commands")[2], re.MULTILINE)
    assert listed == [*COMMANDS]


def test_every_command_has_a_help(dlx_router: Callable[..., Done]) -> None:
    def paths(command: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        yield before
        for name, inner in getattr(command, "commands", {}).items():
            yield from paths(inner, (*before, name))

    for path in paths(program()):
        done = dlx_router(*path, "--help", COLUMNS="80")
        assert (done.returncode, "Usage: dlx-router" in done.stdout) == (0, True), path


def test_a_queue_name_of_any_bytes_and_a_poor_terminal_are_no_error(folder: Path) -> None:
    name = os.fsdecode(b"q\xff\xc3\xa9")
    argv = [sys.executable, "-m", "dlx_router", "policy", "explain", name, "--policies", str(folder)]
    done = subprocess.run(
        argv, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [("policy", "lint"), ("run", "--help")])
def test_the_command_line_starts_at_once(arguments: tuple[str, ...]) -> None:
    """Beside what the libraries alone take that each command needs: a busy machine slows both."""
    libraries = [sys.executable, "-c", "import typer, rich.console, rich.table, pydantic_settings"]

    def seconds(work: Callable[[], object]) -> float:
        """Of the processor: what is beside it does not count."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        work()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [
        (seconds(lambda: in_a_process(*arguments)), seconds(lambda: subprocess.run(libraries, check=True)))
        for _ in range(3)
    ]
    assert min(ours for ours, _ in pairs) < 2 * min(theirs for _, theirs in pairs)


def test_help_and_version_import_nothing_heavy() -> None:
    code = "import sys, dlx_router.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    assert not {"asyncio", "httpx", "pydantic", "rich", "yaml", "uvloop", "structlog"} & set(loaded)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_run_ends_as_the_signal_says_even_without_a_broker(number: signal.Signals, code: int, folder: Path) -> None:
    url = "amqp://nobody:hush@127.0.0.1:1/"
    argv = [sys.executable, "-m", "dlx_router", "run", "--amqp-url", url, "--policies", str(folder), "--http-port", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "router.started" in first, first + process.stderr.read()
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(20) == code, rest
    assert "hush" not in first + rest
