"""Planted faults are found, each by its code; sound files and a sound broker give no finding at all."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from tests.support.client import Client
from tests.support.vhost import Vhost

ROOT: Final = Path(__file__).parents[2]
SOUND: Final = sorted((ROOT / "tests" / "sound").glob("*.yaml"))

BROKEN: Final = """version: 1
attachments:
  - {queue: sac, mode: guard}
policies:
  - {name: argued, queue: argued}
  - {name: gone, queue: gone, definition: {dead-letter-exchange: nowhere}}
  - {name: unbound, queue: unbound, definition: {dead-letter-exchange: amq.direct, dead-letter-routing-key: nobody}}
  - {name: brittle, queue: brittle, definition: {dead-letter-exchange: brittle, dead-letter-routing-key: x}}
  - {name: secret, queue: secret, definition: {dead-letter-exchange: secret, auto-create-dead-letter-resources: true}}
  - {name: spread, queue: spread, definition: {dead-letter-exchange: spread, auto-create-dead-letter-resources: true}}
  - {name: once, queue: once}
  - {name: limited, queue: limited}
  - {name: log, queue: log}
  - {name: vanished, queue: vanished, definition: {dead-letter-exchange: "", dead-letter-routing-key: was.here}}
  - {name: work, queue: work, definition: {redelivery-delay: 5s}}
  - {name: sac, queue: sac, definition: {max-length: 10}}
"""
PLANTED: Final = {
    ("DLX201", "queue argued"), ("DLX202", "nowhere"), ("DLX203", "nobody"), ("DLX204", "brittle"),
    ("DLX206", "secret"), ("DLX106", "spread"), ("DLX208", "sac"), ("DLX209", "queue once"),
    ("DLX210", "queue limited"), ("DLX214", "log"), ("DLX203", "was.here"),
}  # fmt: skip


@pytest.mark.parametrize("file", SOUND, ids=[path.stem for path in SOUND])
def test_a_sound_file_gives_no_finding(file: Path) -> None:
    assert load_policies(file).warnings == ()


def test_there_are_ten_sound_files_and_the_shipped_ones_are_sound() -> None:
    assert len(SOUND) == 10
    assert load_policies(ROOT / "policies").warnings == ()


def lint(vhost: Vhost, folder: Path, user: str = "") -> tuple[int, list[dict[str, Any]]]:
    amqp_url = re.sub(r"//[^@]*@", f"//{user}:x@", vhost.amqp_url) if user else vhost.amqp_url
    urls = {"DLX_ROUTER_AMQP_URL": amqp_url, "DLX_ROUTER_MANAGEMENT_URL": vhost.management_url}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    argv = [sys.executable, "-m", "dlx_router", "policy", "lint", str(folder), "--broker", "--format", "json"]
    done = subprocess.run(argv, env={**kept, **urls}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


def test_faults_of_the_broker_are_found(vhost: Vhost, amqp: Client, tmp_path: Path) -> None:
    user = f"{vhost.name}-router"
    vhost.put(f"users/{user}", {"password": "x", "tags": ""})
    vhost.put(f"permissions/{vhost.quoted}/{user}", {"configure": "", "write": "^(?!secret)", "read": ""})
    for name in ("gone", "unbound", "brittle", "secret", "spread", "vanished", "work"):
        amqp.queue(name, "quorum", dead_letter_exchange="dlx-router.inbox")
    amqp.queue("argued", dead_letter_exchange="elsewhere")
    amqp.queue("once", "quorum", dead_letter_exchange="dlx-router.inbox", dead_letter_strategy="at-least-once")
    amqp.queue("limited", "quorum", delivery_limit=3)
    amqp.queue("log", "stream")
    amqp.queue("sac", single_active_consumer=True)
    amqp.queue("skipped")
    amqp.exchange("secret")
    amqp.exchange("spread", "fanout")
    vhost.put(f"exchanges/{vhost.quoted}/brittle", {"type": "fanout", "durable": False})
    amqp.bind("skipped", "brittle")
    (tmp_path / "p.yaml").write_text(BROKEN, encoding="utf-8")
    code, findings = lint(vhost, tmp_path, user)
    assert code == 1
    texts = [(finding["code"], f"{finding['file']} {finding['message']}") for finding in findings]
    missing = {(code, words) for code, words in PLANTED if not any(c == code and words in text for c, text in texts)}
    assert not missing, findings
    vhost.api.delete(f"users/{user}")


def test_a_sound_broker_gives_no_finding(vhost: Vhost, amqp: Client, tmp_path: Path) -> None:
    amqp.queue("orders.new", "quorum", dead_letter_exchange="dlx-router.inbox")
    amqp.queue("orders.old", dead_letter_exchange="dlx-router.inbox")
    amqp.queue("orders.dead", "quorum", delivery_limit=-1 if vhost.broker.version >= "4" else 1000)
    amqp.exchange("dlx", "topic")
    amqp.bind("orders.dead", "dlx", "dead.#")
    (tmp_path / "p.yaml").write_text("""version: 1
policies:
  - {name: new, queue: orders.new}
  - {name: old, queue: orders.old, definition: {dead-letter-exchange: dlx, dead-letter-routing-key: "dead.{queue}"}}
""")
    assert lint(vhost, tmp_path) == (0, [])


def test_a_broker_that_cannot_be_asked_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: []\n")
    argv = [sys.executable, "-m", "dlx_router", "policy", "lint", str(tmp_path), "--broker"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    for more in ({}, {"DLX_ROUTER_MANAGEMENT_URL": "http://127.0.0.1:9"}):
        done = subprocess.run(argv, env={**kept, **more}, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_ten_thousand_policies_are_checked_in_seconds(tmp_path: Path) -> None:
    selectors = ("queue: q{}.x", 'match: "t{}.#"', 'pattern: "^p{}"')
    rows = [f"  - {{name: n{at}, {selectors[at % 3].format(at)}}}\n" for at in range(10_000)]
    (tmp_path / "p.yaml").write_text("version: 1\npolicies:\n" + "".join(rows))
    began = time.process_time()
    assert load_policies(tmp_path).warnings == ()
    assert time.process_time() - began < 20, "each pair was asked: that takes minutes"


@pytest.mark.parametrize("bomb", ["(a+)+$", "(a|a)*b", "(.*a){20}", "((a{1,30}){1,30}){1,30}"])
def test_no_regular_expression_is_a_bomb(bomb: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies:\n  - {{name: a, pattern: '{bomb}'}}\n")
    began = time.process_time()
    with suppress(PolicyErrors):  # some are refused, and that is as good
        load_policies(tmp_path).policies.resolve(vhost="/", queue="a" * 5000, reason="rejected", queue_type=None)
    assert time.process_time() - began < 5


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    layers = "".join(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]\n" for at in range(1, 20))
    (tmp_path / "p.yaml").write_text(f"version: 1\nl0: &l0 [lol]\n{layers}")
    with pytest.raises(PolicyErrors) as raised:
        load_policies(tmp_path)
    assert "DLX003" in {finding.code for finding in raised.value.findings}
