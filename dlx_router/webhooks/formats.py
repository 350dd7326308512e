"""A message as its receiver wants it: CloudEvents 1.0 as JSON, Slack's blocks, an Adaptive Card for Teams' Workflows.

What others wrote (names of queues, texts of errors) is never markup there: Slack gets it as `plain_text`, Teams in a
`TextRun`, which knows none. The line that chats show in a notification is escaped as Slack asks for.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from dlx_router.core import notices
from dlx_router.core.notices import Message
from dlx_router.core.printable import printable

MAX_DETAILS_CHARS: Final = 2_900  # a section of Slack has 3,000, a card of Teams 28 KB
MAX_TITLE_CHARS: Final = 150  # a header of Slack
Rendered = tuple[str, bytes]


def rendered(message: Message, form: str, source: str, console_url: str | None) -> Rendered:
    """Content type and body. `source`: the prefix of the router, which tells one from another."""
    kind, make = _FORMATS[form]
    return kind, json.dumps(make(message, source, console_url), separators=(",", ":")).encode()


def _cloud_event(message: Message, source: str, console_url: str | None) -> Mapping[str, Any]:
    """In structured mode: the whole event is the body, so the signature covers all of it."""
    link = notices.link(console_url, message)
    where = f"/{quote(message.vhost, safe='')}" if message.vhost else ""
    return {
        "specversion": "1.0",
        "id": message.id,
        "source": f"/dlx-router/{quote(source, safe='')}{where}",
        "type": f"dlx-router.{message.kind}",
        "time": datetime.fromtimestamp(message.ts_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": {
            "title": notices.title(message),
            "vhost": message.vhost or None,
            "count": message.count,
            "items": [dict(item) for item in message.items],
            "link": link,
        },
    }


def _texts(message: Message) -> tuple[str, str]:
    """Title and details, cut, without what would command a terminal or turn the direction."""
    title = printable(notices.title(message))[:MAX_TITLE_CHARS]
    details = "\n".join(map(printable, notices.details(message)))
    return title, details if len(details) <= MAX_DETAILS_CHARS else f"{details[: MAX_DETAILS_CHARS - 1]}…"


def _slack(message: Message, _source: str, console_url: str | None) -> Mapping[str, Any]:
    title, details = _texts(message)
    blocks: list[Mapping[str, Any]] = [{"type": "header", "text": _plain(title)}]
    if details:
        blocks.append({"type": "section", "text": _plain(details)})
    if (link := notices.link(console_url, message)) is not None:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{_escaped(link)}|Look at it>"}})
    return {"text": _escaped(title), "blocks": blocks}


def _plain(text: str) -> Mapping[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escaped(text: str) -> str:
    """As https://api.slack.com/reference/surfaces/formatting asks: no mention, no link of others."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "%7C")


def _teams(message: Message, _source: str, console_url: str | None) -> Mapping[str, Any]:
    title, details = _texts(message)
    body = [_runs(title, size="Medium", weight="Bolder")]
    body += [_runs(line) for line in details.splitlines()]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if (link := notices.link(console_url, message)) is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Look at it", "url": link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _runs(text: str, **look: object) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **look}]}


_JSON: Final = "application/json; charset=utf-8"
_FORMATS: Final[Mapping[str, tuple[str, Callable[[Message, str, str | None], Mapping[str, Any]]]]] = {
    "cloudevents": ("application/cloudevents+json; charset=utf-8", _cloud_event),
    "slack": (_JSON, _slack),
    "teams": (_JSON, _teams),
}
