"""The end of a chaos run: nothing moves any more, and every queue is looked into."""

import time
from contextlib import suppress
from typing import Final

import httpx
import pika

from tools.chaos.accounting import LAST, Books
from tools.chaos.evidence import of_missing
from tools.chaos.load import Load
from tools.chaos.report import Report
from tools.chaos.testbed import Scene, soon

DRAIN_S: Final = 1200.0
RESTING: Final = 6  # looks, half a second apart
GIVEN_UP: Final = 240  # looks: what is not found by then lies nowhere
LOOK_S: Final = 0.5
STOP_S: Final = 300.0
SHOWN: Final = 4000  # characters; the file has all


def revive(scene: Scene, report: Report) -> None:
    """No fault ends a router but a signal; one that ended is an error of its own, and is started again."""
    for at, router in enumerate(scene.routers):
        if not router.running:
            report.violations.append(violation := f"router {at} ended by itself: exit {router.exit_code}")
            print(violation, flush=True)
            router.start(wait=False)


def drain(scene: Scene, load: Load, report: Report) -> None:
    """Nothing is published any more; wait until nothing moves and nothing waits, then look into every queue."""
    started = time.monotonic()
    revive(scene, report)
    load.stop_publishing()
    soon(lambda: not load.unconfirmed, 300)
    rests: list[tuple[int, int]] = []

    def at_rest() -> bool:
        rests.append((_under_way(scene), load.books.finds))
        return _still(rests, RESTING) and (_still(rests, GIVEN_UP) or not load.books.missing())

    if not soon(at_rest, DRAIN_S, every=LOOK_S):
        report.violations.append(f"not at rest after {DRAIN_S:g} s")
    report.drained_s = time.monotonic() - started
    for at, router in enumerate(scene.routers):
        if not router.running or router.stop(STOP_S) != 0:
            report.violations.append(f"router {at} did not drain: exit {router.exit_code}")
    _sweep(scene, load.books)
    if nowhere := load.books.nowhere():
        text = of_missing(scene, nowhere)
        (scene.folder / "chaos-missing.log").write_text(text, encoding="utf-8")
        print(text[:SHOWN], flush=True)


def _still(rests: list[tuple[int, int]], looks: int) -> bool:
    """Nothing waits anywhere, and nothing was found, for so many looks."""
    return len(rests) >= looks and rests[-1][0] == 0 and len(set(rests[-looks:])) == 1


def _under_way(scene: Scene) -> int:
    """Ready letters in queues where none should stay; 1 if nobody can tell."""
    with suppress(pika.exceptions.AMQPError, httpx.HTTPError, OSError):
        return sum(depth for queue, depth in scene.depths().items() if queue not in LAST)
    return 1


def _sweep(scene: Scene, books: Books) -> None:
    for queue, body, letter_id in scene.leftovers():
        books.find(queue, body, letter_id, redelivered=False)
