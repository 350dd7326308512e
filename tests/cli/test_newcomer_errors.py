"""What a newcomer does wrong in the first hours with files and commands: each answer says where, what and what now.

Rows are written as the mistake is made. (mistake, where, the value that is wrong, a part of the advice.) No broker.
"""
# ruff: noqa: E501 - a row of a table is read as one line

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dlx_router.config.api_access.tokens import Tokens, TokensError
from tests.cli.test_cli import Done, dlx_router

__all__ = ["dlx_router"]
Typed = Callable[..., Done]

HEAD: Final = "version: 1\npolicies:\n  - name: orders\n    match: orders.#\n    definition:\n"

# -- keys and values of a definition: line 6 -------------------------------------------------------------------------

KEYS: Final = [
    ("max-delivery-attempt: 5", "max-delivery-attempt", "max-delivery-attempts"),
    *(
        (f"{word}: 5", word, "5 retries are max-delivery-attempts: 6")
        for word in ("max_retries", "maxRetries", "retry-limit", "retry_limit", "maximumRedeliveries", "retryAttempts")
    ),
    ("max_attempts: 5", "max_attempts", "write max-delivery-attempts"),
    ("retry-delay: 5s", "retry-delay", "redelivery-delay"),
    ("backoff: exponential", "backoff", "redelivery-delay-multiplier"),
    ("jitter: 0.2", "jitter", "redelivery-collision-avoidance-factor"),
    ("max-delay: 5m", "max-delay", "max-redelivery-delay"),
    ("dead-letter-queue: orders.dead", "dead-letter-queue", "dead-letter-routing-key"),
    ("dlx: dead", "dlx", "dead-letter-exchange"),
    ("x-message-ttl: 5000", "x-message-ttl", "message-ttl"),
    ("drop: true", "drop", "discard"),
    ("match: orders.new", "match", "beside"),
    ("max-delivery-attempts: five", "five", "1 or more, or -1"),
    ("max-delivery-attempts: -5", "-5", "-1 for no limit"),
    ("redelivery-delay: 5 min", "5 min", '"10m"'),
    ("redelivery-delay: 5sec", "5sec", '"5s"'),
    ("redelivery-delay: 2w", "2w", '"7d"'),
    ("redelivery-delay-multiplier: 2x", "2x", "number"),
    ("redelivery-collision-avoidance-factor: 15", "15", "0..1"),
    ("max-length-bytes: 10MB", "10MB", '"10MiB"'),
    ("max-length-bytes: 1GB", "1GB", '"1GiB"'),
    ("discard: yes", "yes", "true or false"),
    ("dead-letter-exchange: 5", "5", "in quotes"),
    ("dead-letter-exchange: null", "nothing", "expected text"),
    ("dead-letter-exchange: [a, b]", "a list", "text"),
    ("dead-letter-exchange: dlx-router.inbox", "dlx-router.inbox", "one of yours"),
    ("dead-letter-routing-key: dead.{que}", "{que}", "known: attempts, exchange, queue"),
    ("dead-letter-routing-key-rewrite: {match: a, replace: b}", "mapping", "list"),
    ("dead-letter-routing-key-rewrite: [{match: '(a', replace: b}]", "(a", "missing )"),
    ("dead-letter-queue-type: Quorum", "Quorum", "quorum"),
    ("retry-on: [reject]", "reject", "rejected"),
    ("retry-on: [timeout]", "timeout", "expired"),
    ("on: rejected", "rejected", "mapping"),
    ("never-retry: ['attempts = 3']", "attempts = 3", "=="),
    ("never-retry: ['reson == \"rejected\"']", "reson", "reason"),
    ("ordering: FIFO", "FIFO", "fifo"),
    ("outage: true", "true", "{deaths: 50, within: 10s, probe-every: 5s}"),
    ("alert: 1000", "1000", "{depth: 1000, oldest: 1h, rate: 5}"),
    ("journal: all", "all", "{"),
    ("journal: {body: full}", "full", "all"),
    ("overflow: drop_head", "drop_head", "drop-head"),
    ("dead-letter-headers: [artemis, sqs]", "sqs", "emq"),
]  # fmt: skip


def answered(done: Done, where: str, value: str, advice: str) -> None:
    """It says where, what and what now, and none of it is a traceback."""
    output = done.stdout + done.stderr
    assert done.returncode in {1, 2}, output
    assert "Traceback" not in output
    flat = " ".join(output.split())
    for part in (where, value, advice):
        assert part in flat, f"{part!r} is not in: {flat}"


@pytest.mark.parametrize(("text", "value", "advice"), KEYS, ids=[row[0] for row in KEYS])
def test_a_key_or_value_of_a_policy(dlx_router: Typed, tmp_path: Path, text: str, value: str, advice: str) -> None:
    (tmp_path / "p.yaml").write_text(f"{HEAD}      {text}\n")
    answered(dlx_router("policy", "lint", str(tmp_path), COLUMNS="400"), "p.yaml:6", value, advice)


# -- whole files ------------------------------------------------------------------------------------------------------

FILES: Final = [
    ("policy for policies", b"version: 1\npolicy:\n  - {name: a, queue: a}", 2, "policy", "policies"),
    ("a mapping of policies", b"version: 1\npolicies:\n  orders:\n    match: '#'", 2, "mapping", "dash"),
    ("two selectors", b"version: 1\npolicies:\n  - {name: a, queue: a, match: b}", 3, "queue and match", "exactly one"),
    ("a star without quotes", b"version: 1\npolicies:\n  - name: a\n    match: *\n", 4, "* or &", "in quotes"),
    ("a regular expression as match", b"version: 1\npolicies:\n  - {name: a, match: '^orders'}", 3, "^orders", "pattern:"),
    ("a tab", b"version: 1\npolicies:\n\t- name: a\n", 3, "tab", "spaces"),
    ("an open quote", b'version: 1\npolicies:\n  - name: "a\n', 4, "not YAML", "quote"),
    ("a key twice", b"version: 1\npolicies:\n  - name: a\n    queue: b\n    queue: c\n", 5, "queue", "keep one"),
    ("a name twice", b"version: 1\npolicies:\n  - {name: a, queue: b}\n  - {name: a, queue: c}\n", 4, '"a"', "another name"),
    ("an anchor", b"version: 1\npolicies:\n  - &x {name: a, queue: b}\n", 3, "&x", "repeat the value"),
    ("UTF-16", "version: 1\npolicies: []\n".encode("utf-16"), 1, "UTF-16", "UTF-8"),
    ("a relay without a target", b"version: 1\nattachments:\n  - {queue: a, mode: relay}\n", 3, "forward-to", "forward-to: {exchange: NAME}"),
    ("delayed without to", b"version: 1\ndelayed:\n  - {exchange: a}\n", 3, "to", "to:"),
    ("two that tie", b"version: 1\npolicies:\n  - {name: a, queue: q, definition: {max-redrives: 1}}\n  - {name: b, queue: q, definition: {max-redrives: 2}}\n", 4, "max-redrives", "higher priority"),
    ("letters of all queues dropped", b"version: 1\npolicies:\n  - {name: a, match: '#', definition: {discard: true}}\n", 3, "discard", "longer match:"),
    ("a queue of the router", b"version: 1\npolicies:\n  - {name: a, queue: dlx-router.inbox}\n", 3, "dlx-router.inbox", "where messages fail"),
    ("apply_to", b"version: 1\npolicies:\n  - {name: a, queue: a, apply_to: queues}\n", 3, "apply_to", "apply-to"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "line", "value", "advice"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_policy_file(dlx_router: Typed, tmp_path: Path, data: bytes, line: int, value: str, advice: str) -> None:
    (tmp_path / "p.yaml").write_bytes(data)
    answered(dlx_router("policy", "lint", str(tmp_path), COLUMNS="400"), f"p.yaml:{line}", value, advice)


# -- settings ---------------------------------------------------------------------------------------------------------

SETTINGS: Final = [
    ({"AMQP_URL": "localhost:5672"}, "AMQP_URL", "amqp://"),
    ({"AMQP_URL": "amqp://localhost/?heartbeat=5"}, "AMQP_URL", "DLX_ROUTER_"),
    ({"AMQP_URL_FILE": "/nowhere/url"}, "AMQP_URL_FILE", "/nowhere/url"),
    ({"MANAGEMENT_URL": "localhost:15672"}, "MANAGEMENT_URL", "http://"),
    ({"HTTP_PORT": "99999"}, "HTTP_PORT", "65535"),
    ({"PREFETCH": "many"}, "PREFETCH", "1000"),
    ({"IN_FLIGHT_BYTES": "64MB"}, "64MB", "64KiB"),
    ({"CONFIRM_TIMEOUT": "30 sec"}, "30 sec", "5s"),
    ({"LOG_LEVEL": "warn"}, "LOG_LEVEL", "warning"),
    ({"JOURNAL": "on"}, "JOURNAL", "best-effort"),
    ({"PREFIX": "my router"}, "PREFIX", "letters"),
    ({"VHOSTS": "*"}, "VHOSTS", "MANAGEMENT_URL"),
    ({"POLICIES": "/nowhere"}, "/nowhere", "name a path"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "value", "advice"), SETTINGS, ids=[str(row[0]) for row in SETTINGS])
def test_a_wrong_setting(dlx_router: Typed, tmp_path: Path, given: dict[str, str], value: str, advice: str) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: []\n")
    done = dlx_router("permissions", **({"POLICIES": str(tmp_path)} | given), COLUMNS="400")
    name = next(reversed(given))
    answered(done, value if name == "POLICIES" else f"DLX_ROUTER_{name}", value, advice)


# -- commands ---------------------------------------------------------------------------------------------------------

NOBODY: Final = "http://127.0.0.1:9"
COMMANDS: Final = [
    ("helth", "helth", "No such command"),
    ("redrive", "redrive", "start"),
    ("redrive start q --rate fast", "--rate", "a valid number"),
    ("redrive start q --dryrun", "--dryrun", "--dry-run"),
    ("redrive start q --filter x --dry-run", "127.0.0.1:9", "is the router running"),
    ("letters list --since yesterday", "yesterday", "2h"),
    ("letters list --quee q", "--quee", "--queue"),
    ("letters export --id x", "--id", "--from"),
    ("policy lint /nowhere", "/nowhere", "name a path"),
    ("policy lint --format xml", "xml", "github"),
    ("policy explain orders --reason reject --policies policies", "reject", "rejected"),
    ("policy import --from kafka x.json", "kafka", "rabbitmq"),
    ("run --htp-port 1", "--htp-port", "--http-port"),
    ("permissions --for runs", "runs", "run"),
    ("plan --policies policies", "DLX_ROUTER_MANAGEMENT_URL", "https://user"),
    ("support-bundle --to /nowhere/b.zip", "/nowhere", "say --to FILE"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "value", "advice"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_wrong_command(dlx_router: Typed, typed: str, value: str, advice: str) -> None:
    answered(dlx_router(*typed.split(), API_URL=NOBODY, COLUMNS="400"), "", value, advice)


# -- tokens: the place and what now; the value may be a secret, and is not repeated ---------------------------------------

SECRET: Final = "0123456789abcdef-ann"
TOKENS: Final = [
    ("", "tokens.yaml", "write at least one"),
    ("tokens:", "tokens.yaml", "write at least one"),
    (f"tokens: {SECRET}", "tokens.yaml", "has no list `tokens`"),
    (f"- {SECRET}", "tokens.yaml", "has no list `tokens`"),
    (f"tokens: [{SECRET}]", "token 1", "write name, token and role"),
    (f"tokens: [{{name: ann, token: {SECRET}}}]", "token 1", "viewer, operator, admin"),
    (f"tokens: [{{name: ann, role: root, token: {SECRET}}}]", "token 1", "viewer, operator, admin"),
    (f"tokens: [{{user: ann, role: admin, token: {SECRET}}}]", "token 1", "known: match, name, role"),
    ("tokens: [{name: ann, role: admin, token: 1234567890123456}]", "token 1", "quote it"),
    ("tokens: [{name: ann, role: admin, token: short}]", "token 1", "at least 16 characters"),
    (f"tokens: [{{name: ann, role: admin, token: '{SECRET}]", "line 1", "look at quotes"),
    (f"tokens:\n\t- {SECRET}", "line 2", "indentation"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "advice"), TOKENS, ids=[row[0] for row in TOKENS])
def test_a_tokens_file(tmp_path: Path, text: str, where: str, advice: str) -> None:
    (tmp_path / "tokens.yaml").write_text(text)
    with pytest.raises(TokensError) as raised:
        Tokens(tmp_path / "tokens.yaml")
    assert str(raised.value).startswith("API_TOKENS_FILE ")
    assert where in str(raised.value)
    assert advice in str(raised.value)
    assert SECRET not in str(raised.value)
