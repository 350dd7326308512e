"""Show a small shop on a real broker: messages wait, are retried or end in dead-letter queues; an outage passes.

    python -m tools.demo.run               about a minute
    python -m tools.demo.run --seconds 20  shorter waits; under 18 seconds there is no outage
    python -m tools.demo.run --keep        the console stays until Ctrl-C

Ctrl-C ends it earlier. The vhost and a private broker are removed at the end.
Exit: 0 each message was acked once or lies unchanged in one dead-letter queue, and the outage cost no message and no
message all its attempts · 1 otherwise · 2 wrong use, or no broker · 130 interrupted before the shop opened.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.brokers import BrokerError, chosen, free_port
from tools.demo.shop import ATTEMPTS, DESKS, INBOX, OUTAGE, Shop, Vhost, own_vhost
from tools.journal import events
from tools.polling import ready

ROOT: Final = Path(__file__).parents[2]
LEAST_S, OUTAGE_LEAST_S = 5, 18  # the breaker alone takes ten seconds to close
DLQ: Final = "DLQ."
PARKED: Final = ("dlx-router.parking", "dlx-router.quarantine")
BREAKER: Final = (
    "the breaker is closed: messages are handled as usual",
    "a probe survived: the breaker is half-open, held messages go back, more each second",
    "the breaker opens: messages are held and use no attempt; one probe a second",
)
_POLICY: Final = """\
version: 1
policies:
  - name: shop
    match: "shop.#"
    definition:
      max-delivery-attempts: {attempts}
      redelivery-delay: {delay}ms
      redelivery-delay-multiplier: 2.0
      redelivery-collision-avoidance-factor: 0.1
      # no dead-letter-exchange: what is out of tries goes to DLQ.<queue>
  - {{name: shipments, queue: {queue}, definition: {{outage: {{deaths: 4, within: 5s, probe-every: 1s}}}}}}
"""


class DemoError(Exception):
    """The router does not run as it should."""


@dataclass
class Router:
    """A process of `dlx-router run` in `folder`."""

    amqp_url: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of its HTTP server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C does not reach it; wait until it is ready."""
        argv = [sys.executable, "-m", "dlx_router", "run", "--policies", str(self.folder / "policies")]
        own = {"AMQP_URL": self.amqp_url, "HTTP_PORT": str(self.port), "LOG_FORMAT": "text"}
        own |= {"INDEX_PATH": str(self.folder / "index.sqlite"), **self.settings}
        env = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        env |= {f"DLX_ROUTER_{key}": value for key, value in own.items()}
        with (self.folder / "log").open("ab") as out:
            self.process = subprocess.Popen(argv, env=env, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        deadline = time.monotonic() + 60
        while not self._is_ready():
            if not self.runs or time.monotonic() > deadline:
                raise DemoError(f"the router did not get ready:\n{self._tail()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        return False

    def metric(self, name: str, labels: str = "") -> int:
        """Return the sum of a metric over its labels; 0 if the router does not answer."""
        with suppress(httpx.TransportError):
            text = httpx.get(f"{self.url}/metrics", timeout=5, trust_env=False).text
            rows = re.findall(rf"^dlx_router_{name}(?:{{.*{labels}.*}})? (\S+)$", text, re.MULTILINE)
            return sum(int(float(value)) for value in rows)
        return 0

    def stop(self) -> None:
        """Stop it in order."""
        if self.process is None:
            return
        self.process.terminate()
        if self.process.wait(60):
            raise DemoError(f"the router ended with exit code {self.process.returncode}:\n{self._tail()}")

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _tail(self) -> str:
        return "\n".join((self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


@dataclass
class Demo:
    """A shop, its router, and what a person sees of them."""

    console: Console
    vhost: Vhost
    router: Router
    shop: Shop
    link: pika.BlockingConnection
    signals: list[int]
    is_lively: bool
    ending: str = "Ctrl-C ends it"
    history: list[tuple[float, str]] = field(default_factory=list)
    breaker: int = 0
    was_down: bool = False
    _printed_s: float = 0.0

    def run(self, publish_s: float, settle_s: float) -> None:
        """Show the shop until every message has arrived; a signal ends each of the two parts early."""
        with Live(console=self.console, auto_refresh=False) if self.is_lively else nullcontext() as live:
            self._show_until(lambda: False, publish_s, live)
            self.shop.stop_publishing()
            self.ending = "closed: waiting for messages on their way; Ctrl-C hurries"
            self._show_until(self._has_arrived, settle_s, live)

    def _show_until(self, done: Callable[[], bool], within_s: float, live: Live | None) -> None:
        asked, ends = len(self.signals), time.monotonic() + within_s
        while time.monotonic() < ends and len(self.signals) == asked and self.router.runs and not self.shop.errors:
            self._notice()
            if live is not None:
                live.update(self.picture(), refresh=True)
            elif time.monotonic() - self._printed_s > 2:  # noqa: PLR2004 - a line every two seconds
                self._printed_s = time.monotonic()
                rows = (
                    f"{desk.queue} %d: %d ok, %d failures, %d waiting, %d in DLQ" % row for desk, row in self.rows()
                )
                self.print(" | ".join([*rows, *[*self.shop.stories][-1:]]))
            if done():
                return
            time.sleep(0.25)

    def _has_arrived(self) -> bool:
        ends = sum(ready(self.link, name) for name in self.vhost.queues() if name.startswith(DLQ) or name in PARKED)
        return self.shop.unacked() <= ends and (not self.breaker or bool(self.signals))

    def _notice(self) -> None:
        """Report what changed for the carrier and the breaker."""
        news = []
        if self.shop.is_down != self.was_down:
            self.was_down = not self.was_down
            news.append("the carrier is down: every shipment fails" if self.was_down else "the carrier is back")
        if (breaker := self.router.metric("breaker_state", f'queue="{OUTAGE}"')) != self.breaker:
            self.breaker = breaker
            news.append(BREAKER[breaker])
        for headline in news:
            self.history.append((time.monotonic() - self.shop.opened_s, headline))
            self.shop.stories.append(f"{OUTAGE}: {headline}")
            if not self.is_lively:
                self.print(f"*** {OUTAGE}: {headline}")

    def rows(self) -> list[tuple[Any, tuple[int, int, int, int, int]]]:
        """Return each desk with published, succeeded, failed, waiting and dead messages."""
        return [(desk, self.shop.counts(desk.queue, ready(self.link, DLQ + desk.queue))) for desk in DESKS]

    def table(self) -> Table:
        """Return the numbers of all queues."""
        table = Table("queue", "consumer", box=None)
        for name in ("published", "succeeded", "failures", "waiting", "in DLQ.*"):
            table.add_column(name, justify="right")
        for desk, numbers in self.rows():
            styles = ("", "green", "yellow", "cyan", "bold red")
            cells = (Text(f"{n:,}", style=style if n else "dim") for n, style in zip(numbers, styles, strict=True))
            table.add_row(desk.queue, desk.consumer, *cells)
        return table

    def picture(self) -> Group:
        """Return the whole screen."""
        names = ("deliveries_total", "settled_total", "given_back_total", "in_flight")
        law = "{:,} deliveries = {:,} settled + {} given back + {} in flight".format(*map(self.router.metric, names))
        waiting = (
            (name.rpartition(".")[2], ready(self.link, name)) for name in self.vhost.queues() if ".delay." in name
        )
        queues = "  ".join(f"{int(ms) / 1000:g} s × {depth}" for ms, depth in waiting if depth) or "empty"
        inside = f"inbox {ready(self.link, INBOX)}   waiting in delay queues: {queues}\n{law}\n{BREAKER[self.breaker]}"
        stories = Text("\n").join(map(_story, [*self.shop.stories])) or Text("nothing has failed yet")
        return Group(
            Panel(self.table(), title="[bold]A shop whose messages fail[/]", border_style="dim"),
            Panel(stories, title="Messages", border_style="dim", height=10),
            Panel(
                Text(f"{inside}\nbreaker of {OUTAGE}: {BREAKER[self.breaker]}"), title="The router", border_style="dim"
            ),
            Text(f"{self.router.url}/ · {self.ending}", style="dim"),
        )

    def account(self) -> int:
        """Compare the queues, now that nobody moves anything, with the shop's record; return the exit code."""
        lying = [letter for name in self.vhost.queues() for letter in _read(self.link, name)]
        dead = [letter for letter in lying if letter[0].startswith(DLQ)]
        ended = [(name, body) for queue, name, body, _ in lying if queue.startswith(DLQ) or queue in PARKED]
        wrong = self.shop.audit(ended)
        self.console.print(self.table())
        for queue, name, _, headers in dead[:1]:
            self.print(f"\n{name}, as it lies in {queue}: its x-death and the header dlx-router", "bold")
            record = headers.get("dlx-router", b"{}")
            shown = {"x-death": headers.get("x-death"), "dlx-router": json.loads(record)}
            self.print(json.dumps(shown, indent=1, default=str))
        for what, names in wrong.items():
            for name in names[:10]:
                where = ", ".join(letter[0] for letter in lying if letter[1] == name) or "no queue"
                self.print(f"{what}: {name} (lies in: {where})", "red")
        is_fine, total = not any(wrong.values()), len(self.shop.entries)
        counts = ", ".join(f"{what} {len(names)}" for what, names in wrong.items())
        self.print(
            f"\naccounted for: {total - len(wrong['missing'])} of {total} messages "
            f"(succeeded {total - self.shop.unacked()}, dead {len(dead)}, parked {len(ended) - len(dead)}, {counts})",
            "bold green" if is_fine else "bold red",
        )
        for error in self.shop.errors:
            self.print(f"broke: {error}", "red")
        return int(not is_fine or bool(self.shop.errors))

    def account_outage(self) -> int:
        """Report from the journal what the outage cost; return the exit code."""
        rows = [row for row in events(self.link, idle_s=1.0) if row.get("failed_queue") == OUTAGE]
        held, probes = (sum(row.get(key) == value for row in rows) for key, value in _OF_OUTAGE)
        most = max((int(row["attempts"]) for row in rows), default=0)
        self.print(f"\nThe outage of {OUTAGE}:", "bold")
        for seconds, what in self.history:
            self.print(f"  {seconds:5.1f} s  {what}")
        is_fine = held > 0 and probes > 0 and most < ATTEMPTS and not self.breaker
        counts = f"held {held} times, {probes} probes; no message used more than {most} of its {ATTEMPTS} attempts"
        self.print(f"  {counts}", "bold green" if is_fine else "bold red")
        return int(not is_fine)

    def print(self, text: str, style: str | None = None) -> None:
        """Print text as it is, without markup and wrapping."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


_OF_OUTAGE: Final = (("kind", "held"), ("breaker", "probe"))


def _story(line: str) -> Text:
    name, _, rest = line.partition(": ")
    style = "red" if "out of tries" in line else "green" if "succeeded" in line else "yellow"
    return Text(name.ljust(12), style="bold") + Text(rest, style="bold magenta" if name == OUTAGE else style)


def _read(link: pika.BlockingConnection, queue: str) -> Iterator[tuple[str, str, bytes, dict[str, Any]]]:
    """Yield queue, name, body and headers of each ready message; they go back when the connection closes."""
    channel = link.channel()
    with suppress(ChannelClosedByBroker):  # the router's own state is locked
        while (got := channel.basic_get(queue))[0] is not None:
            _, properties, body = got
            try:
                name = str(json.loads(body)["name"])
            except (ValueError, KeyError, TypeError):
                name = repr(body)[:60]
            yield queue, name, body, properties.headers or {}


@contextmanager
def prepared(console: Console, seconds: float, signals: list[int]) -> Iterator[tuple[Demo, tuple[float, float]]]:
    """Start broker, router and shop; yield the demo, and how long it publishes and settles."""
    delay_ms = int(min(max(seconds * 50, 250), 2000))
    begins_s = min(seconds * 0.1, 6.0)
    down = (begins_s, begins_s + min(max(seconds * 0.2, 4.0), 10.0)) if seconds >= OUTAGE_LEAST_S else None
    with (
        chosen() as broker,
        tempfile.TemporaryDirectory(prefix="dlx-router-demo-") as folder,
        own_vhost(broker) as vhost,
    ):
        (Path(folder) / "policies").mkdir()
        text = _POLICY.format(attempts=ATTEMPTS, delay=delay_ms, queue=OUTAGE)
        (Path(folder) / "policies/shop.yaml").write_text(text, encoding="utf-8")
        router, shop = Router(vhost.amqp_url, Path(folder)), Shop(vhost.amqp_url, down)
        link = pika.BlockingConnection(pika.URLParameters(f"{vhost.amqp_url}?heartbeat=0"))
        try:
            router.start()
            demo = Demo(console, vhost, router, shop, link, signals, is_lively=sys.stdout.isatty())
            demo.print(f"RabbitMQ {broker.version} and dlx-router are up. The console, in a browser: {router.url}/")
            demo.print("" if down else f"No outage: that takes at least --seconds {OUTAGE_LEAST_S}.")
            yield demo, (max(seconds - 3.3 * delay_ms / 1000 - 1.5, 1.0), 60 + 8 * delay_ms / 1000)
        finally:
            router.kill()
            if link.is_open:
                link.close()


def run(console: Console, seconds: float, *, keeps: bool) -> int:
    """Run the demo; return the exit code."""
    signals: list[int] = []
    with prepared(console, seconds, signals) as (demo, (publish_s, settle_s)):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: signals.append(number))
        try:
            demo.shop.open()
            demo.run(publish_s, settle_s)
        finally:
            demo.shop.close()
        demo.router.stop()
        code = demo.account()
        if demo.shop.down and not signals and not demo.shop.errors:
            code = code or demo.account_outage()
        if keeps:
            asked = len(signals)
            demo.router.start()
            demo.print(f"\nThe console stays at {demo.router.url}/ until Ctrl-C.", "bold cyan")
            while len(signals) == asked and demo.router.runs:
                time.sleep(0.25)
    console.print("Cleaned up: the demo's vhost, router and private broker are gone.")
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """See the module for exit codes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, metavar="N", default=55.0, help=f"at least {LEAST_S} (55)")
    parser.add_argument("--keep", action="store_true", help="leave router and console open at the end, until Ctrl-C")
    given = parser.parse_args(argv)
    if not LEAST_S <= given.seconds < float("inf"):
        parser.error(f"--seconds {given.seconds:g}: at least {LEAST_S}, so that messages have time to wait")
    console = Console(highlight=False)
    try:
        return run(console, given.seconds, keeps=given.keep)
    except KeyboardInterrupt:
        return 130
    except BrokerError as error:
        console.print(f"No broker for the demo: {error}", style="red", markup=False)
        return 2
    except (DemoError, AMQPError, httpx.HTTPError, OSError) as error:
        console.print(f"The demo could not go on: {error or type(error).__name__}", style="red", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
