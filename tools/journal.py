"""The router's journal, read to its end as it stands: what tools judge a router by."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pika

from dlx_router.journal.reading import lines
from tools.polling import stream

JOURNAL: Final = "dlx-router.journal"


def events(link: pika.BlockingConnection, *, idle_s: float) -> Iterator[dict[str, Any]]:
    """Every event, the oldest first, until nothing comes for `idle_s` seconds."""
    for _, body in stream(link, JOURNAL, idle_s=idle_s):
        yield from map(json.loads, lines(body))
