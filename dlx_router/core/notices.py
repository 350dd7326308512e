"""What people are told by webhooks: notices, and the messages that they are gathered into.

A notice is one thing that happened (a group opened, a breaker closed). A message tells of one or more of a kind, in one
vhost. Pure values: what a message is in words and where it leads is said here once, for every format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

EVENTS: Final[Mapping[str, str]] = {
    "group.opened": "letters died of something that was not known before",
    "group.returned": "a resolved group had another death",
    "breaker.opened": "everything dies in a queue, and its letters are held",
    "breaker.closed": "letters of that queue are judged as usual again",
    "letter.parked": "letters were parked: nobody knows where they belong",
    "redrive.halted": "a task stopped by itself",
    "redrive.finished": "a task is done",
}
TEST: Final = "webhook.test"
MAX_ITEMS: Final = 10  # of a message are named, the others counted
TEXT_CHARS: Final = 300  # of a text that others wrote


class Notice(NamedTuple):
    """`key`: of several with the same one only the sum of `letters` is told. `queues`: what an endpoint may match."""

    kind: str
    vhost: str
    key: str
    queues: tuple[str, ...]
    item: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`vhost` "": it is a test. `count`: of letters or things, those that are not named included."""

    id: str
    kind: str
    vhost: str
    ts_ms: int
    count: int
    items: tuple[Mapping[str, Any], ...]


def shortened(text: object) -> str:
    """What others wrote, as long as a message may have it."""
    plain = "" if text is None else str(text)
    return plain if len(plain) <= TEXT_CHARS else f"{plain[: TEXT_CHARS - 1]}…"


# -- in words ---------------------------------------------------------------------------------------------------


_TITLES: Final[Mapping[str, tuple[str, str]]] = {  # of one, of several
    "group.opened": ("New: letters die in {queue}", "{count} new groups of deaths"),
    "group.returned": ("Back again: letters die in {queue}", "{count} groups are back again"),
    "breaker.opened": ("Breaker open: {queue}", "{count} breakers opened"),
    "breaker.closed": ("Breaker closed: {queue}", "{count} breakers closed"),
    "letter.parked": ("1 letter was parked", "{count} letters were parked"),
    "redrive.halted": ("Task {task} stopped by itself", "{count} tasks stopped by themselves"),
    "redrive.finished": ("Task {task} is done", "{count} tasks are done"),
    TEST: ("A test of dlx-router's webhooks", "A test of dlx-router's webhooks"),
}


def title(message: Message) -> str:
    """One line that says it all."""
    item = message.items[0] if message.items else {}
    text = _TITLES[message.kind][message.count != 1]
    line = text.format(queue=_queue(item), task=item.get("task"), count=message.count)
    return f"{line} (vhost {message.vhost})" if message.vhost not in {"", "/"} else line


def _queue(item: Mapping[str, Any]) -> str:
    return str(item.get("failed_queue") or item.get("queue") or "?")


def details(message: Message) -> list[str]:
    """A line for each item that is named, and one for the others."""
    lines = [_line(message.kind, item) for item in message.items]
    more = message.count - sum(int(item.get("letters", 1)) for item in message.items)
    return [line for line in lines if line] + ([f"and {more} more"] if more > 0 and message.items else [])


def _line(kind: str, item: Mapping[str, Any]) -> str:
    match kind.partition(".")[0]:
        case "group":
            error = ": ".join(part for part in (item.get("error_type"), item.get("message")) if part)
            frame = f" at {item['frame']}" if item.get("frame") else ""
            return f"{_queue(item)}: {item.get('reason')}{f', {error}' if error else ''}{frame}"
        case "letter":
            return f"{_queue(item)}: {item.get('letters')}"
        case "redrive":
            why = f": {item['why']}" if item.get("why") else ""
            return f"{item.get('kind')} of {item.get('queue')}, {item.get('sent')} of {item.get('meant')} sent{why}"
        case "breaker":
            opened = kind == "breaker.opened"
            return f"{_queue(item)}: {'all dies there; letters wait' if opened else 'letters go their way again'}"
    return ""


# -- where it leads ---------------------------------------------------------------------------------------------


def link(console_url: str | None, message: Message) -> str | None:
    """The console's page about it; None where nobody said where the console is."""
    return None if not console_url else console_url.rstrip("/") + _page(message)


def _page(message: Message) -> str:
    item, path = _only(message), "/"
    queue = {"queue": item["failed_queue"]} if item.get("failed_queue") else {}
    query = {"vhost": message.vhost} if message.vhost else {}
    match message.kind.partition(".")[0]:
        case "group" if item.get("group"):
            path, query = f"/groups/{quote(str(item['group']), safe='')}", {}
        case "group":
            path, query = "/groups", {"state": "open", **query}
        case "letter":
            path, query = "/letters", {"state": "parked", **queue, **query}
        case "breaker":
            path, query = "/letters", {**queue, **query}
        case "redrive":
            path = f"/tasks/{quote(str(item['task']), safe='')}" if item.get("task") else "/tasks"
    return f"{path}?{urlencode(query)}" if query else path


def _only(message: Message) -> Mapping[str, Any]:
    """The one thing that it is about; nothing where there are several."""
    return message.items[0] if len(message.items) == 1 else {}
