"""Notes on letters, and revisions of the policies, over a router: said by people, kept by the journal, told again."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.index.conftest import POLICIES, Desk
from tests.index.test_commands import run
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router

HOSTILE: Final = "<script>alert(1)</script> \u202eevil\x1b[2J =1+1"
VIEWER, OPERATOR = "viewer-" + "v" * 20, "operator-" + "o" * 20
TOKENS: Final = f"""
tokens:
  - {{name: vic, token: {VIEWER}, role: viewer}}
  - {{name: olga, token: {OPERATOR}, role: operator, match: "twice.#"}}
"""


def letter_in(desk: Desk, name: str) -> str:
    """A letter that was tried twice at a queue of this name."""
    desk.work(name)
    desk.kill(name, b'{"order": 1}')
    desk.amqp.fail(name)
    (letter,) = desk.letters(1, queue=name, state="dead")
    return str(letter["id"])


def shown(desk: Desk, letter: str) -> dict[str, Any]:
    status, answer = desk.get(f"/letters/{letter}")
    assert status == 200, answer
    row: dict[str, Any] = answer["letters"][0]
    return row


def commented(desk: Desk, letter: str, text: str, **query: str) -> tuple[int, Any]:
    return desk.ask("POST", f"/letters/{letter}/comments", json={"text": text}, params=query)


@pytest.mark.usefixtures("newest")
def test_a_note_is_told_again_after_a_restart_and_a_rebuild(desk: Desk) -> None:
    letter = letter_in(desk, "twice.noted")
    status, answer = commented(desk, letter, "asked the warehouse")
    assert (status, [(note["actor"], note["text"]) for note in answer["comments"]]) == (
        201, [("local", "asked the warehouse")],
    )  # fmt: skip
    assert commented(desk, letter, HOSTILE)[0] == 201
    before = shown(desk, letter)["comments"]
    assert [note["text"] for note in before] == ["asked the warehouse", HOSTILE]
    desk.letters(1, q="warehouse", queue="twice.noted")
    audits = desk.get("/audits")[1]["audits"]
    assert [audit["details"]["text"] for audit in audits if audit["action"] == "letter.comment"][-2:] == [
        HOSTILE, "asked the warehouse",
    ]  # fmt: skip
    assert desk.router.stop() == 0
    desk.router.start(within=40)
    assert shown(desk, letter)["comments"] == before
    rebuilds = desk.state()["rebuilds"]
    assert desk.ask("POST", "/index/rebuild")[0] == 202
    eventually(lambda: desk.state()["rebuilds"] > rebuilds, 20)
    assert (
        eventually(lambda: desk.get(f"/letters/{letter}")[0] == 200 and shown(desk, letter)["comments"], 30) == before
    )
    desk.letters(1, q="warehouse", queue="twice.noted")


@pytest.mark.usefixtures("newest")
def test_what_is_no_note_is_refused_and_keeps_nothing(desk: Desk) -> None:
    letter = letter_in(desk, "twice.refused")
    for text in ("", " \n\t", "x" * 2001):
        assert commented(desk, letter, text)[0] == 422, text[:9]
    assert commented(desk, "f" * 32, "x")[0] == 404
    assert commented(desk, letter, "x", queue="elsewhere")[0] == 404
    assert desk.ask("POST", f"/letters/{letter}/comments", json={"text": "x", "actor": "eve"})[0] == 422
    assert shown(desk, letter)["comments"] == []
    assert commented(desk, letter, "x" * 2000)[0] == 201


@pytest.mark.usefixtures("newest")
def test_who_may_only_look_or_sees_other_queues_notes_nothing(
    start_router: Callable[..., Router], tmp_path: Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    router = start_router(POLICIES, API_TOKENS_FILE=str(tmp_path / "tokens.yaml"), INDEX_PATH=str(tmp_path / "i"))
    url = f"http://127.0.0.1:{router.port}/api/v1/letters/{'a' * 32}/comments"

    def answers() -> list[int]:
        return [
            httpx.post(
                url, json={"text": "x"}, headers={"authorization": f"Bearer {token}"}, trust_env=False, verify=NO_TLS
            ).status_code
            for token in (VIEWER, OPERATOR)
        ]

    eventually(lambda: answers() == [403, 404], 20)  # 503 until the index is there


@pytest.mark.usefixtures("newest")
def test_the_command_notes_and_shows_what_was_noted_and_the_rule_that_decided(desk: Desk) -> None:
    letter = letter_in(desk, "twice.typed")
    done = run(desk, "letters", "comment", letter, HOSTILE)
    assert (done.returncode, done.stdout.startswith(f"{letter}: noted, 20")) == (0, True), done.stderr
    assert run(desk, "letters", "comment", letter, "  ").returncode == 2
    text = run(desk, "letters", "show", letter).stdout
    assert "noted by local: <script>alert(1)</script> \\u202eevil" in text
    assert not {"\x1b", "\u202e"} & {*text}
    rules = [line.strip(" │") for line in text.splitlines() if " by max-delivery-attempts: 2, " in line]
    assert len(rules) == 2, text
    assert all("policies" in line and line.endswith("(twice)") for line in rules)


# -- revisions ------------------------------------------------------------------------------------------------------


def revisions(desk: Desk) -> list[dict[str, Any]]:
    status, answer = desk.get("/policies/revisions", vhost=desk.vhost.name)
    assert status == 200, answer
    rows: list[dict[str, Any]] = answer["revisions"]
    return rows


def in_force(desk: Desk) -> str:
    """The revision in force, once the journal has it."""

    def known() -> str:
        now = [row for row in revisions(desk) if row["is_in_force"] and row["in_force_ms"]]
        return str(now[0]["revision"]) if now else ""

    return eventually(known, 30, every=0.2)


def diffed(desk: Desk, *argv: str) -> subprocess.CompletedProcess[str]:
    return run(desk, "policy", "diff", *argv, "--vhost", desk.vhost.name)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_two_revisions_are_compared_by_what_they_say_and_decided(desk: Desk) -> None:
    before, (file,) = in_force(desk), [*desk.router.policies.glob("*.yaml")]
    letter = letter_in(desk, "twice.compared")
    step = shown(desk, letter)["journey"][0]
    assert (step["revision"], [rule["key"] for rule in step["rules"]]) == (
        before, ["max-delivery-attempts", "redelivery-delay"],
    )  # fmt: skip
    old = file.read_text(encoding="utf-8")
    try:
        file.write_text(old.replace("max-delivery-attempts: 2", "max-delivery-attempts: 1"), encoding="utf-8")
        after = eventually(lambda: "" if (now := in_force(desk)) == before else now, 30)
        desk.kill("twice.compared", b"two")
        desk.letters(2, queue="twice.compared", state="dead")
        assert shown(desk, letter)["journey"][0]["rules"] == [], "another revision decided"
        _compare(desk, before, after)
        folder = str(desk.router.policies)
        done = diffed(desk, before, folder, "--json")
        assert (done.returncode, json.loads(done.stdout)["now"]["revision"]) == (1, after)
        assert diffed(desk, "in-force", folder).returncode == 0
        assert desk.router.stop() == 0
        desk.router.start(within=40)
        _compare(desk, before, after)
    finally:
        file.write_text(old, encoding="utf-8")
    eventually(lambda: in_force(desk) == before, 30)


def _compare(desk: Desk, before: str, after: str) -> None:
    """By the API, and by the command line."""
    status, answer = desk.get("/policies/diff", a=before, b=after, vhost=desk.vhost.name)
    assert status == 200, answer
    (policy,) = answer["policies"]
    keys = [{name: key[name] for name in ("key", "was", "now")} for key in policy["keys"]]
    assert (policy["name"], keys) == ("twice", [{"key": "max-delivery-attempts", "was": "2", "now": "1"}])
    (queue,) = [queue for queue in answer["queues"] if queue["queue"] == "twice.compared"]
    assert (queue["was_decided"], queue["now_decided"]) == ({"retried": 1, "dead_lettered": 1}, {"dead_lettered": 1})
    shown_there = diffed(desk, before, after)
    assert shown_there.returncode == 1, shown_there.stderr
    assert f"revision {before} → revision {after}" in shown_there.stdout
    assert "Policy twice: changed" in shown_there.stdout


@pytest.mark.usefixtures("newest")
def test_what_is_no_revision_or_not_known_any_more_says_so(desk: Desk) -> None:
    now = in_force(desk)
    assert desk.get("/policies/diff", a="0" * 12, b=now, vhost=desk.vhost.name)[0] == 404
    assert desk.get("/policies/diff", a="HEAD", vhost=desk.vhost.name)[0] == 422
    assert desk.get("/policies/revisions/in-force", vhost=desk.vhost.name)[1]["revision"] == now
    same = desk.get("/policies/diff", a=now, vhost=desk.vhost.name)[1]
    assert (same["is_equal"], same["now"]["revision"]) == (True, now)
    for wrong, words in (
        ("HEAD", "neither a file or folder nor a revision"),
        ("0" * 12, "nothing is known of revision"),
    ):
        done = diffed(desk, wrong, "in-force")
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    broken = desk.router.policies.parent / "broken.yaml"
    broken.write_text("version: 1\npolicies: [{}]\n", encoding="utf-8")
    assert diffed(desk, str(broken), "in-force").returncode == 2
