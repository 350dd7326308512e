"""A new broker beside the old one: definitions imported, every letter carried over by RabbitMQ's shovel, on-confirm."""

import time
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import quote

import httpx

from tools.brokers import Node
from tools.brokers.programs import Program

RUNG: Final = "dlx-router.delay."
RELEASE: Final = "dlx-router.release"
BOOKS: Final = ("dlx-router.state", "dlx-router.journal")  # of the old router; a new one writes its own
WITHIN_S: Final = 120.0
LOOK_S: Final = 0.5
RESTING: Final = 6  # looks; the broker's statistics are a moment old


class MoveError(Exception):
    """Not all could be carried over; says what is left."""


def moved(old: Node, program: Program, stack: ExitStack) -> Node:
    """A node of `program` with the definitions and all letters of `old`. No router may run meanwhile."""
    new = Node(program)
    stack.callback(new.close)
    here, there = _api(old), _api(new)
    stack.callback(here.close)
    stack.callback(there.close)
    there.post("definitions", json=here.get("definitions").raise_for_status().json()).raise_for_status()
    names = [queue["name"] for queue in here.get("queues/%2F?columns=name").raise_for_status().json()]
    carried = [name for name in names if name not in BOOKS]
    for name in carried:
        there.put(_path(name), json={"value": _shovel(old, new, name)}).raise_for_status()
    _await_empty(here, carried)
    for name in carried:
        there.delete(_path(name)).raise_for_status()
    return new


def _shovel(old: Node, new: Node, queue: str) -> dict[str, str]:
    """To the same queue; out of a rung to release, because a rung would begin the whole wait anew."""
    target = {"dest-exchange": RELEASE} if queue.startswith(RUNG) else {"dest-queue": queue}
    return {
        "src-protocol": "amqp091", "src-uri": old.amqp_url, "src-queue": queue,
        "dest-protocol": "amqp091", "dest-uri": new.amqp_url, **target, "ack-mode": "on-confirm",
    }  # fmt: skip


def _path(queue: str) -> str:
    return f"parameters/shovel/%2F/{quote(queue, safe='')}"


def _await_empty(here: httpx.Client, queues: list[str]) -> None:
    """Nothing is ready or unacked in any of them, for some looks."""
    deadline, rests = time.monotonic() + WITHIN_S, 0
    while rests < RESTING:
        rows = here.get("queues/%2F?columns=name,messages").raise_for_status().json()
        left = {row["name"]: row.get("messages", 1) for row in rows if row["name"] in queues and row.get("messages", 1)}
        rests = 0 if left else rests + 1
        if time.monotonic() > deadline:
            raise MoveError(f"still in the old broker after {WITHIN_S:g} s: {left}")
        time.sleep(LOOK_S)


def _api(node: Node) -> httpx.Client:
    url: Any = httpx.URL(f"{node.management_url}/api/")
    auth = (url.username, url.password)
    return httpx.Client(base_url=url.copy_with(userinfo=b""), auth=auth, timeout=30, trust_env=False)
