"""Notes on letters, and revisions of the policies, over a router: said by people, kept by the journal, told again."""

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
    assert (done.returncode, done.stdout.startswith(f"{letter}: noted")) == (0, True), done.stderr
    assert run(desk, "letters", "comment", letter, "  ").returncode == 2
    text = run(desk, "letters", "show", letter).stdout
    assert "noted by local: <script>alert(1)</script> \\u202eevil" in text
    assert not {"\x1b", "\u202e"} & {*text}
    rules = [line.strip(" │") for line in text.splitlines() if " by max-delivery-attempts: 2, " in line]
    assert len(rules) == 2, text
    assert all("policies" in line and line.endswith("(twice)") for line in rules)
