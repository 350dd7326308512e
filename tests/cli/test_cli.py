"""The command line as people meet it: a process, its exit code, what it prints."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlx_router.config.settings import Settings, default_text, option, variable

ROOT = Path(__file__).parents[2]
GOOD = "version: 1\npolicies: [{name: all, match: '#', definition: {redelivery-delay: 1s}}]\n"
BAD = "version: 1\npolicies: [{name: all, match: '#', definition: {redelivery-dealy: 1s}}]\n"
TIED = "version: 1\npolicies:\n- {name: a, queue: q, definition: {discard: true}}\n- {name: b, queue: q, definition: {discard: false}}\n"


def dlx_router(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    named = {f"DLX_ROUTER_{key}": value for key, value in variables.items()}
    argv = [sys.executable, "-m", "dlx_router", *arguments]
    done = subprocess.run(
        argv,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        cwd=ROOT,
        env=others | named,
        check=False,
        timeout=30,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        (GOOD, 0, "", "0 errors, 0 warnings, 1 policies in 1 files, revision "),
        (
            BAD,
            1,
            'p.yaml:2: error DLX005: unknown key "redelivery-dealy"; did you mean "redelivery-delay"?',
            "1 errors",
        ),
        (TIED, 1, "p.yaml:4: warning DLX101: ", "0 errors, 1 warnings, 2 policies"),
    ],
)
def test_lint_prints_findings_and_ends_with_one_if_there_are_some(
    text: str, code: int, out: str, err: str, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = dlx_router("policy", "lint", str(tmp_path))
    assert done.returncode == code
    assert out in done.stdout
    assert err in done.stderr


def test_lint_prints_json_for_programs(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(BAD)
    done = dlx_router("policy", "lint", str(tmp_path), "--format", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["errors"], found["warnings"]) == (1, 1, 0)
    assert {key: found["findings"][0][key] for key in ("code", "severity", "line")} == {
        "code": "DLX005",
        "severity": "error",
        "line": 2,
    }


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
def test_wrong_use_and_unreadable_paths_end_with_two(arguments: tuple[str, ...]) -> None:
    done = dlx_router(*arguments)
    assert (done.returncode, bool(done.stderr + done.stdout)) == (2, True)


def test_run_refuses_policies_with_errors_and_shows_them(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(BAD)
    done = dlx_router("run", POLICIES=str(tmp_path))
    assert done.returncode == 1
    assert "DLX005" in done.stderr


def test_run_refuses_a_policy_for_a_vhost_that_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, match: a, vhost: shop}]\n")
    done = dlx_router("run", POLICIES=str(tmp_path))
    assert done.returncode == 1
    assert 'policy "a" is for vhost "shop", which is not served (/)' in done.stderr


def test_run_tells_every_bad_setting_and_no_secret() -> None:
    done = dlx_router("run", HTTP_PORT="x", AMQP_URL="amqp://u:hush@h:x", MANAGEMENT_URL="u:hush@h")
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "DLX_ROUTER_AMQP_URL", "DLX_ROUTER_MANAGEMENT_URL", "DLX_ROUTER_HTTP_PORT",
    ]  # fmt: skip
    assert "hush" not in done.stderr


def test_the_help_of_run_lists_every_setting_with_variable_and_default() -> None:
    words = dlx_router("run", "--help", COLUMNS="200").stdout.split()
    for name in Settings.model_fields:
        assert option(name) in words
        assert f"[{variable(name)};" in words or f"[{variable(name)}]" in words
        assert all(f"{word}]" in words for word in default_text(name).split())


def test_help_lists_the_commands() -> None:
    done = dlx_router("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("run", "policy"))
    assert all(word in dlx_router("policy", "--help").stdout for word in ("lint", "explain"))


def test_explain_shows_keys_sources_waits_and_targets() -> None:
    out = dlx_router("policy", "explain", "orders.new", "--policies", "policies").stdout
    lines = {tuple(line.split()) for line in out.splitlines()}
    assert ("max-delivery-attempts", "5", "policies/orders.yaml:12", "(orders)") in lines
    assert ("max-redrives", "3", "default") in lines
    assert ("4", "40s", "34s", "…", "46s") in lines
    assert ("rejected", "4", "times", "default", "exchange,", "key", "orders.failed") in lines
    assert ("expired", "no", "queue", "DLQ.orders.new", "(quorum,", "created", "when", "needed)") in lines
    assert ("application:invalid", "no", "default", "exchange,", "key", "orders.failed") in lines


def test_explain_of_one_reason_shows_what_holds_for_it() -> None:
    out = dlx_router("policy", "explain", "orders.new", "--reason", "application:invalid").stdout
    lines = {tuple(line.split()) for line in out.splitlines()}
    assert ("retry-on", "[]", "policies/orders.yaml:22", "(orders)") in lines
    assert "Waits" not in out


TARGETS = [
    ("dead-letter-exchange: dlx", "exchange dlx, original keys"),
    ("{dead-letter-exchange: dlx, dead-letter-routing-key: 'dead.{queue}.{reason}.{attempts}.{header:x}.{routing_key}'}",
     "exchange dlx, key dead.q.rejected.10.<header:x>.<routing_key>"),
    ("{dead-letter-exchange: dlx, dead-letter-routing-key-rewrite: [{match: a, replace: b}]}", "rewritten where a rewrite matches"),
    ("{dead-letter-exchange: dlx, auto-create-dead-letter-resources: true}", "queue DLQ.q (quorum, created when needed) by exchange dlx"),
    ("{dead-letter-queue-type: classic}", "queue DLQ.q (classic, created when needed)"),
    ("{max-delivery-attempts: -1}", "none: tried again without limit"),
    ("{discard: true}", "dropped (discard: true)"),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "words"), TARGETS)
def test_explain_says_where_a_letter_ends(definition: str, words: str, tmp_path: Path) -> None:
    body = definition if definition.startswith("{") else f"{{{definition}}}"
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies: [{{name: a, match: '#', definition: {body}}}]\n")
    done = dlx_router("policy", "explain", "q", "--policies", str(tmp_path), "--reason", "rejected")
    assert words in done.stdout, done.stdout + done.stderr


def test_explain_of_a_queue_without_policy_says_that_its_letters_are_parked(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: a, match: a}]\n")
    done = dlx_router("policy", "explain", "b", "--policies", str(tmp_path))
    assert (done.returncode, "parked (no_policy)" in done.stdout) == (0, True)


def test_a_queue_name_of_any_bytes_and_a_poor_terminal_are_no_error(folder: Path) -> None:
    argv = [sys.executable, "-m", "dlx_router", "policy", "explain", b"q\xff\xc3\xa9", "--policies", str(folder)]
    done = subprocess.run(
        argv, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("policy", "lint"), ("run", "--help")])
def test_the_command_line_starts_at_once(arguments: tuple[str, ...]) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        dlx_router(*arguments)
        return time.perf_counter() - started

    assert min(seconds() for _ in range(3)) < 0.6, "300 ms on an idle core; twice that where the machine is busy"


def test_help_and_version_import_nothing_heavy() -> None:
    code = "import sys, dlx_router.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    assert not {"asyncio", "httpx", "pydantic", "rich", "yaml", "uvloop", "structlog"} & set(loaded)
