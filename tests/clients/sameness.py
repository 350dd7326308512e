"""What a message has to look like when it comes back, and how its end is explained."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.conformance.typed import Seen, seen
from tests.index.conftest import Desk
from tests.index.test_commands import run
from tests.support.eventually import eventually
from tests.support.raw import RawClient

__all__ = ["HERE", "RETURN", "Desk", "ends", "own", "ways"]

HERE: Final = Path(__file__).parent
RETURN: Final = "dlx-router.return"
SHOP: Final = "shop"
_ADDED: Final = re.compile(r"dlx-router.*|x-death|x-(first|last)-death-.*|DLQ\..*|x-delivery-count")


def own(headers: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The headers without what the router and the broker write at a death."""
    return {name: value for name, value in dict(headers).items() if not _ADDED.fullmatch(name)}


def ways(desk: Desk, name: str, exchange: str = SHOP) -> str:
    """`work.NAME`, which dead-letters into the inbox, and beside it `copy.NAME`: what `exchange` gets is in both."""
    queue, key = desk.work(f"work.{name}"), f"work.{name}"
    if exchange == SHOP:
        desk.amqp.exchange(SHOP, "topic")
    for target in (queue, desk.amqp.queue(f"copy.{name}")):
        desk.amqp.bind(target, exchange, key)
    return queue


def ends(desk: Desk, queue: str, grave: str = "") -> Seen:
    """The letter lies in its dead-letter queue, byte for byte as it was published, and a command explains it.

    Its expiration is taken off, as by the broker at a death.
    """
    grave = grave or f"DLQ.{queue}"
    eventually(lambda: desk.amqp.exists(grave) and desk.amqp.depth(grave) == 1, within=20)
    with RawClient(desk.vhost.amqp_url) as raw:
        first, last = raw.get(queue.replace("work.", "copy.")), raw.get(grave)
    assert last is not None
    dead = seen(last)
    if first is not None:
        published = seen(first)
        assert dead.body == published.body
        assert dict(dead.properties) == {name: value for name, value in published.properties if name != "expiration"}
        assert own(dead.headers) == own(published.headers)
    explained(desk, queue)
    return dead


def explained(desk: Desk, queue: str) -> None:
    """`dlx-router letters show` tells where it died, of what, and that its attempts were spent."""
    (letter,) = desk.letters(1, queue=queue, state="dead")
    shown = run(desk, "letters", "show", letter["id"])
    assert shown.returncode == 0, shown.stderr
    for word in (queue, "rejected", "attempts_spent", "retried", "dead-lettered"):
        assert word in shown.stdout, f"{word}\n{shown.stdout}"


def lines(text: str) -> list[Any]:
    """What a client printed, a JSON document a line."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
