"""A small shop on a real broker: watch its letters wait, retry and end in dead-letter queues, and an outage pass by.

    python -m tools.demo.run               about a minute
    python -m tools.demo.run --seconds 20  shorter waits; under 18 seconds there is no outage
    python -m tools.demo.run --keep        the console stays until Ctrl-C, to look at what died and send it back

It ends by itself, and Ctrl-C ends it earlier. Exit 0 only if every message is accounted for by the shop's own books:
acked once by a consumer, or lying in exactly one dead-letter or parking queue, unchanged; and if the outage cost no
letter, and no letter all its attempts. 1: some are not, or something broke · 2: wrong use, or no broker to be had
· 130: interrupted before the end. Nothing is left behind: a broker that was given is as it was.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from pika.exceptions import AMQPError
from rich.console import Console

from tools.brokers import Broker, BrokerError, chosen
from tools.demo.accounting import Books, Plan, Tally, Verdict
from tools.demo.outage import LEAST_S as OUTAGE_LEAST_S
from tools.demo.outage import Chronicle, effort
from tools.demo.router import Router, RouterError, running_router
from tools.demo.screen import DLQ, Screen, View, farewell, greeting, lively, plain, summary, tell_outage
from tools.demo.shop import DESKS, Lying, Shop, Vhost, Watch, own_vhost

LEAST_S: Final = 5
USUAL_S: Final = 55.0
PARKED: Final = ("dlx-router.parking", "dlx-router.quarantine")
_EVERY_S: Final = 0.25
_PATIENCE_S: Final = 20.0


class Leave:
    """Signals: before the shop is open they end the demo at once, then the first ends it in order, the second hurries.

    During the clean-up they do nothing: it is short, and must be whole.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.orderly = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self)

    def __call__(self, *_: object) -> None:
        self.asked += 1
        if not self.orderly and self.asked == 1:
            raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """The exit code, see the module."""
    seconds, keeps = _arguments(argv)
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")
    console = Console(force_terminal=lively(), highlight=False)
    leave = Leave()
    try:
        return _with_broker(console, Plan.of(seconds), leave, keeps=keeps)
    except KeyboardInterrupt:
        plain(console, "Interrupted; everything is cleaned up.")
        return 130
    except BrokerError as error:
        plain(console, f"No broker for the demo: {error}", "red")
        return 2
    except (RouterError, AMQPError, httpx.HTTPError) as error:
        plain(console, f"The demo could not go on: {error or type(error).__name__}", "red")
        return 1


def _arguments(argv: list[str] | None) -> tuple[float, bool]:
    parser = argparse.ArgumentParser(description="A small shop whose messages fail, on a real RabbitMQ.")
    usage = f"end after about so many seconds, at least {LEAST_S} (default: {USUAL_S:g}); Ctrl-C ends it earlier"
    parser.add_argument("--seconds", type=float, metavar="N", default=USUAL_S, help=usage)
    parser.add_argument("--keep", action="store_true", help="leave router and console open at the end, until Ctrl-C")
    given = parser.parse_args(argv)
    seconds: float = given.seconds
    if not LEAST_S <= seconds < float("inf"):
        parser.error(f"--seconds {seconds:g}: at least {LEAST_S}, so that letters have time to wait")
    return seconds, bool(given.keep)


def _with_broker(console: Console, plan: Plan, leave: Leave, *, keeps: bool) -> int:
    plain(console, "Starting RabbitMQ (a private one, unless DLX_ROUTER_TEST_AMQP_URL names yours) and the router …")
    with (
        chosen() as broker,
        tempfile.TemporaryDirectory(prefix="dlx-router-demo-") as folder,
        own_vhost(broker) as vhost,
        running_router(vhost.amqp_url, Path(folder), plan) as router,
    ):
        greeting(console, router, broker.version)
        if plan.outage is None:
            plain(console, f"No outage: that takes at least --seconds {OUTAGE_LEAST_S}.\n")
        code = _demo(console, vhost, router, plan, leave)
        if keeps:
            _keep(console, router, leave)
    plain(console, _cleaned(broker))
    farewell(console)
    return code


def _demo(console: Console, vhost: Vhost, router: Router, plan: Plan, leave: Leave) -> int:
    books = Books(plan, {desk.queue: Tally() for desk in DESKS})
    shop = Shop(vhost.amqp_url, books)
    screen = Screen(console, books, router, Chronicle(plan.outage))
    with _watching(vhost) as watch:
        leave.orderly = True
        try:
            shop.open()
            with screen.shown():
                _run(shop, screen, watch, leave)
                _settle(shop, screen, watch, leave)
        finally:
            shop.close()
    metrics = router.said()
    router.stop()
    code = _account(console, shop, View(books.snapshot(), {}, metrics), vhost)
    if plan.outage is None or leave.asked or shop.errors:
        return code
    return code or tell_outage(console, screen.chronicle, effort(vhost.amqp_url), plan.attempts)


def _keep(console: Console, router: Router, leave: Leave) -> None:
    """The shop is closed and its books are; what died can be looked at and sent back until somebody leaves."""
    before = leave.asked
    router.start_again()
    plain(console, f"\nThe console stays at {router.url}/ until Ctrl-C.", "bold cyan")
    while leave.asked == before and router.running:
        time.sleep(_EVERY_S)
    router.stop()


@contextmanager
def _watching(vhost: Vhost) -> Iterator[Watch]:
    watch = Watch(vhost)
    try:
        yield watch
    finally:
        watch.close()


def _run(shop: Shop, screen: Screen, watch: Watch, leave: Leave) -> None:
    """The shop is open until its time is over, somebody wants to leave or something breaks."""
    ends = time.monotonic() + shop.books.plan.publish_s
    while time.monotonic() < ends and not leave.asked and not _broken(shop, screen.router):
        screen.update(_view(shop, watch, screen))
        time.sleep(_EVERY_S)
    shop.stop_publishing()


def _settle(shop: Shop, screen: Screen, watch: Watch, leave: Leave) -> None:
    """Until nothing is on its way; it ends early where somebody hurries, where something breaks, or in the end."""
    screen.ending = "closed: waiting for letters on their way; Ctrl-C hurries"
    hurry = leave.asked + 1
    ends = time.monotonic() + shop.books.plan.longest_s + _PATIENCE_S
    while time.monotonic() < ends and leave.asked < hurry and not _broken(shop, screen.router):
        view = _view(shop, watch, screen)
        arrived = shop.books.open() <= sum(depth for name, depth in view.depths.items() if _is_end(name))
        if arrived and (screen.chronicle.is_over or leave.asked):
            screen.ending = "closed: every letter has arrived"
            screen.update(_view(shop, watch, screen), last=True)
            return
        screen.update(view)
        time.sleep(_EVERY_S)


def _account(console: Console, shop: Shop, view: View, vhost: Vhost) -> int:
    """Read what lies in the queues, now that nobody moves it, and compare it with the books."""
    with _watching(vhost) as watch:
        depths, lying = watch.depths(), watch.lying()
        verdict = _verdict(shop.books, lying)
        summary(console, View(view.tallies, depths, view.said), verdict, lying)
    for error in shop.errors:
        plain(console, f"broke: {error}", "red")
    return 0 if verdict.fine and not shop.errors else 1


def _verdict(books: Books, lying: list[Lying]) -> Verdict:
    dead = [(letter.name, letter.body) for letter in lying if letter.queue.startswith(DLQ)]
    parked = [(letter.name, letter.body) for letter in lying if letter.queue in PARKED]
    return books.audit(dead, parked)


def _view(shop: Shop, watch: Watch, screen: Screen) -> View:
    metrics = screen.router.said()
    for news in screen.chronicle.notice(metrics.breaker if metrics is not None else None, down=shop.is_down):
        screen.headline(news)
    return View(shop.books.snapshot(), watch.depths(), metrics)


def _is_end(queue: str) -> bool:
    return queue.startswith(DLQ) or queue in PARKED


def _broken(shop: Shop, router: Router) -> bool:
    return bool(shop.errors) or not router.running


def _cleaned(broker: Broker) -> str:
    what = "the private RabbitMQ is gone" if broker.managed else "your RabbitMQ is as it was: the demo's vhost is gone"
    return f"Cleaned up: {what}."


if __name__ == "__main__":
    sys.exit(main())
