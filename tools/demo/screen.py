"""What a person sees: a live picture on a terminal, a line now and then elsewhere, and a summary at the end."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.demo.accounting import Books, Tally, Verdict
from tools.demo.outage import QUEUE, STATES, Chronicle, Effort
from tools.demo.router import Router, Said
from tools.demo.shop import DESKS, INBOX, Desk, Lying

DLQ: Final = "DLQ."
DELAY: Final = "dlx-router.delay."
_LINES_EVERY_S: Final = 2.0
_STORIES: Final = 8
_SHOWN: Final = 10
_RED: Final = "bold red"


@dataclass(frozen=True, slots=True)
class View:
    """Everything at one instant: the shop's books, the broker's queues, the router's metrics."""

    tallies: Mapping[str, Tally]
    depths: Mapping[str, int]
    said: Said | None

    def row(self, desk: Desk) -> tuple[int, int, int, int, int]:
        """Published, succeeded, failed deliveries, waiting, dead."""
        of, dead = self.tallies[desk.queue], self.depths.get(DLQ + desk.queue, 0)
        return of.published, of.ok, of.failures, max(of.away - dead, 0), dead

    def rungs(self) -> dict[int, int]:
        """Letters on each rung that holds some, by its milliseconds."""
        depths = {name.removeprefix(DELAY): depth for name, depth in self.depths.items() if name.startswith(DELAY)}
        return {int(ms): depths[ms] for ms in sorted(depths, key=int) if depths[ms]}


@dataclass
class Screen:
    """Prints to stdout; without a terminal not one control character."""

    console: Console
    books: Books
    router: Router
    chronicle: Chronicle
    ending: str = ""
    _live: Live | None = None
    _printed_at: float = field(default_factory=lambda: time.monotonic() - _LINES_EVERY_S)
    _shown_stories: int = 0

    @contextmanager
    def shown(self) -> Iterator["Screen"]:
        """`update` shows something while this lasts; the last picture stays."""
        if not lively():
            yield self
            return
        with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as self._live:
            yield self

    def update(self, view: View, *, last: bool = False) -> None:
        """Show this; on paper only every two seconds, and the last."""
        if self._live is not None:
            self._live.update(self.picture(view), refresh=True)
        elif last or time.monotonic() - self._printed_at >= _LINES_EVERY_S:
            self._printed_at = time.monotonic()
            self._lines(view)

    def headline(self, news: str) -> None:
        """Something that nobody should miss; on paper it has a line of its own."""
        self.books.tell(f"{QUEUE}: {news}")
        if self._live is None:
            plain(self.console, f"*** {QUEUE}: {news}")

    def picture(self, view: View) -> RenderableType:
        """The whole screen at this instant."""
        title = "[bold]A shop whose messages fail[/]"
        stories = list(self.books.stories)[-self._room() :]
        letters = Text("\n").join(_story(story) for story in stories) if stories else Text("nothing has failed yet")
        footer = self.ending or "Ctrl-C ends it"
        return Group(
            Panel(_table(view), title=title, border_style="dim"),
            Panel(letters, title="Letters", border_style="dim", height=self._room() + 2),
            Panel(_inside(view), title="The router", border_style="dim"),
            Text(f"metrics {self.router.url}/metrics · {footer}", style="dim"),
        )

    def _room(self) -> int:
        """Lines for stories: the picture must fit, or it could not be drawn over."""
        return max(min(_STORIES, self.console.height - 20), 1)

    def _lines(self, view: View) -> None:
        """The numbers, and one thing that happened since the last."""
        parts = []
        for desk in DESKS:
            published, ok, failures, waiting, dead = view.row(desk)
            parts.append(f"{desk.queue} {published}: {ok} ok, {failures} failures, {waiting} waiting, {dead} in DLQ")
        before, self._shown_stories = self._shown_stories, self.books.told
        if self._shown_stories > before and self.books.stories:
            parts.append(self.books.stories[-1])
        plain(self.console, " | ".join(parts) + (f" | {self.ending}" if self.ending else ""))


def lively() -> bool:
    """Somebody looks at a terminal that can draw."""
    return sys.stdout.isatty() and not Console().is_dumb_terminal


def plain(console: Console, text: str = "", style: str | None = None) -> None:
    """Text as it is: nothing is markup, nothing is wrapped."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def greeting(console: Console, router: Router, version: str) -> None:
    """What runs, where, and what to try while it does."""
    me = command()
    plain(console, f"RabbitMQ {version} and dlx-router are up. The console, in a browser: {router.url}/")
    plain(console, "While it runs, in another terminal:")
    for line in (
        f"curl -s {router.url}/metrics | grep '^dlx_router_'",
        f"curl -s {router.url}/readyz",
        f"{me} policy explain shop.payments --policies {router.policies}",
    ):
        plain(console, f"  {line}", "cyan")
    plain(console)


def summary(console: Console, view: View, verdict: Verdict, lying: list[Lying]) -> None:
    """Where all messages are, one dead letter with its history, and the verdict."""
    plain(console)
    console.print(_table(view))
    if letter := next((candidate for candidate in lying if candidate.queue.startswith(DLQ)), None):
        _dead_letter(console, letter)
    _trouble(console, verdict, lying)
    plain(console)
    plain(console, str(verdict), "bold green" if verdict.fine else _RED)


def tell_outage(console: Console, chronicle: Chronicle, effort: Effort, attempts: int) -> int:
    """How the outage went, and what it cost; 1 where the breaker did not do its work."""
    plain(console, f"\nThe outage of {QUEUE}:", "bold")
    for seconds, what in chronicle.events:
        plain(console, f"  {seconds:5.1f} s  {what}")
    fine = effort.held > 0 and effort.probes > 0 and effort.most_attempts < attempts and chronicle.is_over
    counts = f"held {effort.held} times, {effort.probes} probes; no letter used more than {effort.most_attempts}"
    plain(console, f"  {counts} of its {attempts} attempts", "bold green" if fine else _RED)
    return 0 if fine else 1


def farewell(console: Console) -> None:
    """Commands that work now, when the demo's broker and policies are gone."""
    me = command()
    plain(console, "\nTo try next:")
    for line, why in (
        (f"{me} policy explain orders.new --policies policies/", "what a policy means for a queue, and who set it"),
        (f"{me} policy lint policies/", "every mistake at once, with file and line"),
        (f"{me} run --help", "every setting"),
        ("make demo SECONDS=20 KEEP=1", "the same, shorter; the console stays open until Ctrl-C"),
    ):
        console.print(Text("  ") + Text(line, style="cyan") + Text(f"   # {why}", style="dim"), soft_wrap=True)


def command() -> str:
    """How `dlx-router` is typed here: that of this Python's environment, which need not be on the path."""
    beside = Path(sys.executable).parent / "dlx-router"
    if not beside.exists():
        return "python -m dlx_router"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)


def _table(view: View) -> Table:
    table = Table(box=None, pad_edge=False, expand=False)
    table.add_column("queue", style="bold")
    table.add_column("consumer")
    for name in ("published", "succeeded", "failures", "waiting", "in DLQ.*"):
        table.add_column(name, justify="right")
    for desk in DESKS:
        numbers = view.row(desk)
        styles = ("", "green", "yellow", "cyan", _RED)
        cells = (Text(f"{n:,}", style=style if n else "dim") for n, style in zip(numbers, styles, strict=True))
        table.add_row(desk.queue, desk.consumer, *cells)
    return table


def _story(line: str) -> Text:
    name, _, rest = line.partition(": ")
    style = "red" if "out of tries" in line else "green" if "succeeded" in line else "yellow"
    style = "bold magenta" if name == QUEUE else style
    return Text(name.ljust(12), style="bold") + Text(rest, style=style)


def _inside(view: View) -> Text:
    rungs = "  ".join(f"{ms / 1000:g} s × {depth}" for ms, depth in view.rungs().items()) or "empty"
    first = f"inbox {view.depths.get(INBOX, 0)}   waiting on rungs: {rungs}"
    metrics = view.said
    if metrics is None:
        return Text(f"{first}\nno answer\n\n")
    done = "  ".join(f"{action} {count:,}" for action, count in sorted(metrics.actions.items()) if count)
    law = (
        f"{metrics.deliveries:,} deliveries = {metrics.settled:,} settled + {metrics.given_back} given back "
        f"+ {metrics.in_flight} in flight"
    )
    breaker = f"breaker of {QUEUE}: {STATES[metrics.breaker]}"
    return Text(f"{first}\n{law}\n{done}\n{breaker}")


def _dead_letter(console: Console, letter: Lying) -> None:
    plain(console, f"\n{letter.name}, as it lies in {letter.queue}:", "bold")
    table = Table("queue", "reason", "count", "exchange", "routing keys", "time", title="x-death", title_justify="left")
    for death in letter.headers.get("x-death", []):
        keys = ", ".join(death.get("routing-keys", []))
        cells = (death.get("queue"), death.get("reason"), death.get("count"), death.get("exchange") or '""')
        table.add_row(*map(str, cells), keys, f"{death.get('time'):%H:%M:%S}" if death.get("time") else "")
    console.print(table)
    plain(console, "header dlx-router, the record:")
    for key, value in _record(letter.headers).items():
        plain(console, f"  {key:14} {json.dumps(value, ensure_ascii=False)}")


def _record(headers: Mapping[str, Any]) -> dict[str, Any]:
    raw = headers.get("dlx-router", b"{}")
    text = raw.decode() if isinstance(raw, bytes) else str(raw)
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"unreadable": text}


def _trouble(console: Console, verdict: Verdict, lying: list[Lying]) -> None:
    """Names of what is not as it should be, and where such a message lies."""
    where: dict[str, list[str]] = {}
    for letter in lying:
        where.setdefault(letter.name, []).append(letter.queue)
    sorts = (verdict.missing, verdict.twice, verdict.changed, verdict.unknown, verdict.spoiled)
    for what, names in zip(("missing", "twice", "changed", "unknown", "dead by the outage"), sorts, strict=True):
        for name in names[:_SHOWN]:
            plain(console, f"{what}: {name} (lies in: {', '.join(where.get(name, ['no queue']))})", "red")
        if len(names) > _SHOWN:
            plain(console, f"{what}: and {len(names) - _SHOWN} more", "red")
