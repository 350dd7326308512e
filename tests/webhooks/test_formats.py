"""A message as its receiver wants it: valid, small, and nothing that others wrote is markup in it."""

import json
from datetime import datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.notices import EVENTS, MAX_ITEMS, Message, shortened
from dlx_router.webhooks.formats import rendered
from tests.core.test_notices import message

CONSOLE: Final = "https://console.example"
HOSTILE: Final = (
    "<!channel> <https://evil.example|click> **b** [x](https://evil.example) \u202egnp.exe \x1b[31m & \n# h"
)


def of(notice: Message, form: str, console: str | None = CONSOLE) -> Any:
    kind, body = rendered(notice, form, "dlx-router", console)
    assert kind.startswith("application/")
    return json.loads(body)


@pytest.mark.parametrize("kind", EVENTS)
def test_a_cloud_event_has_what_version_1_0_asks_for(kind: str) -> None:
    event = of(message(kind), "cloudevents")
    assert rendered(message(kind), "cloudevents", "p", None)[0].startswith("application/cloudevents+json")
    assert event["specversion"] == "1.0"
    assert all(isinstance(event[name], str) and event[name] for name in ("id", "source", "type"))
    assert event["type"] == f"dlx-router.{kind}"
    assert datetime.fromisoformat(event["time"]).timestamp() == 1_700_000_000
    assert event["datacontenttype"] == "application/json"
    assert event["data"]["link"].startswith(CONSOLE)
    assert {name for name in event if not (name.islower() and name.isalnum())} == set(), "names of attributes"


@pytest.mark.parametrize("kind", EVENTS)
def test_slack_gets_blocks_within_its_limits(kind: str) -> None:
    payload = of(message(kind), "slack")
    assert payload["text"]
    assert len(payload["blocks"]) <= 50
    assert payload["blocks"][0]["type"] == "header"
    assert len(payload["blocks"][0]["text"]["text"]) <= 150
    assert payload["blocks"][-1]["text"]["text"].startswith(f"<{CONSOLE}")


@pytest.mark.parametrize("kind", EVENTS)
def test_teams_gets_an_adaptive_card_as_its_workflows_take_it(kind: str) -> None:
    payload = of(message(kind), "teams")
    assert payload["type"] == "message"
    (attachment,) = payload["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Look at it", "url": card["actions"][0]["url"]}]
    assert card["actions"][0]["url"].startswith(CONSOLE)


@pytest.mark.parametrize("form", ["cloudevents", "slack", "teams"])
def test_without_a_console_there_is_no_link(form: str) -> None:
    text = json.dumps(of(message("group.opened"), form, None))
    assert "http://" not in text.replace("http://adaptivecards.io", "")
    assert "https://" not in text


def _hostile(count: int = 1) -> Message:
    item = {
        "group": "g1",
        "failed_queue": HOSTILE,
        "reason": HOSTILE,
        "error_type": HOSTILE,
        "message": HOSTILE,
        "frame": "",
    }
    return Message("m", "group.opened", HOSTILE, 0, count, (item,) * count)


def test_slack_shows_what_others_wrote_as_text() -> None:
    payload = of(_hostile(), "slack")
    assert "<" not in payload["text"]
    markup = [text for text in _texts(payload) if text.get("type") == "mrkdwn"]
    assert len(markup) == 1
    assert markup[0]["text"] == f"<{CONSOLE}/groups/g1|Look at it>"
    written = "".join(text["text"] for text in _texts(payload) if isinstance(text.get("text"), str))
    assert set("\x1b\u202e").isdisjoint(written)


def test_teams_shows_what_others_wrote_in_runs_of_text_only() -> None:
    card = of(_hostile(), "teams")["attachments"][0]["content"]
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert all(set("\x1b\u202e").isdisjoint(run["text"]) for run in runs)


def _texts(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [text for inner in part for text in _texts(inner)]
    if not isinstance(part, dict):
        return []
    return [part, *(text for inner in part.values() for text in _texts(inner))]


@given(st.text(max_size=600), st.sampled_from(["cloudevents", "slack", "teams"]), st.integers(1, MAX_ITEMS))
def test_no_text_makes_a_message_too_large_for_its_receiver(text: str, form: str, items: int) -> None:
    item = dict.fromkeys(("group", "failed_queue"), text[:255])
    item |= dict.fromkeys(("reason", "error_type", "message", "frame"), shortened(text))
    notice = Message("m", "group.opened", "/", 0, items, (item,) * items)
    kind, body = rendered(notice, form, "p", CONSOLE)
    limit = {"teams": 28_000 * 6, "slack": 60_000, "cloudevents": 256_000}[form]  # \uXXXX counts six times here
    assert len(body) <= limit
    if form == "slack":
        assert all(
            len(part.get("text", "")) <= 3000 for part in _texts(json.loads(body)) if isinstance(part.get("text"), str)
        )
    assert kind
