"""The pictures of README and docs, drawn from what our programs print: `make screenshots` → docs/img/*.svg.

demo.svg shows `make demo` after some seconds, on a real broker; the others are commands that need none. A picture
holds text and shapes only: it loads no font and no script from anywhere.
"""

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.policies import BROKEN
from tools.brokers import BrokerError, chosen
from tools.demo.accounting import Books, Plan, Tally
from tools.demo.outage import OPEN, Chronicle, Outage
from tools.demo.router import running_router
from tools.demo.screen import Screen, View
from tools.demo.shop import DESKS, Shop, Watch, own_vhost

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "img"
DEMO_COLUMNS: Final = 100
COLUMNS: Final = 132  # no picture is wider
DEMO_S: Final = 12.0
STORIES: Final = 5
PATIENCE_S: Final = 60.0
_BROKEN: Final = f"""\
{BROKEN}      redelivery-delay-multiplier: two
      dead-letter-exchange: ""
"""
# What is typed for each picture; `policies` is the folder of the repository, `my-policies` has _BROKEN.
COMMANDS: Final = {
    "explain": "dlx-router policy explain orders.new | grep -v 'default$'",
    "lint": "dlx-router policy lint my-policies || true",
}
_SHIM: Final = 'set -o pipefail; dlx-router() {{ "{python}" -m dlx_router "$@"; }}; {line}'
_FORMAT: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    """0: drawn · 2: wrong use, or no broker to be had."""
    parser = argparse.ArgumentParser(description="Draw the pictures of README and docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"demo, {', '.join(COMMANDS)}; without any: all")
    names = parser.parse_args().names or ["demo", *COMMANDS]
    if strange := [name for name in names if name not in {"demo", *COMMANDS}]:
        parser.error(f"no picture is called {', '.join(strange)}")
    FOLDER.mkdir(exist_ok=True)
    try:
        for name in names:
            drawn = demo() if name == "demo" else command(name)
            (FOLDER / f"{name}.svg").write_text(drawn, encoding="utf-8")
            print(FOLDER / f"{name}.svg")
    except BrokerError as error:
        print(f"No broker for the demo: {error}", file=sys.stderr)
        return 2
    return 0


def command(name: str) -> str:
    """What is typed and what is printed, as a picture."""
    typed = COMMANDS[name].removesuffix(" || true")
    shown = printed(name)
    widest = max(map(len, shown.splitlines()))
    return picture(Text.assemble((f"$ {typed}\n", "bold"), shown), typed, name, min(max(widest, 80), COLUMNS))


def printed(name: str) -> str:
    """What a command prints."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-screenshots-") as work:
        (Path(work) / "policies").symlink_to(ROOT / "policies")
        (Path(work) / "my-policies").mkdir()
        (Path(work) / "my-policies" / "orders.yaml").write_text(_BROKEN, encoding="utf-8")
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        argv = ["bash", "-c", _SHIM.format(python=sys.executable, line=COMMANDS[name])]
        env = {**others, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}
        done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, check=True, timeout=60)
    return f"{done.stdout}{done.stderr}".rstrip()


def demo() -> str:
    """The demo, once letters wait, succeed and are dead."""
    plan = Plan(float("inf"), 2000, Outage(3.0, float("inf")))
    with (
        chosen() as broker,
        tempfile.TemporaryDirectory(prefix="dlx-router-screenshots-") as work,
        own_vhost(broker) as vhost,
        running_router(vhost.amqp_url, Path(work), plan) as router,
    ):
        books = Books(plan, {desk.queue: Tally() for desk in DESKS})
        shop, watch = Shop(vhost.amqp_url, books), Watch(vhost)
        screen = Screen(
            Console(file=io.StringIO(), width=DEMO_COLUMNS, height=32), books, router, Chronicle(plan.outage)
        )
        try:
            shop.open()
            started = time.monotonic()
            while True:
                view = View(books.snapshot(), watch.depths(), router.said())
                breaker = view.said.breaker if view.said is not None else None
                for news in screen.chronicle.notice(breaker, down=shop.is_down):
                    screen.headline(news)
                seconds = time.monotonic() - started
                if seconds > PATIENCE_S or (seconds > DEMO_S and _shows_enough(view, books)):
                    return picture(screen.picture(view), "make demo", "demo")
                time.sleep(0.25)
        finally:
            shop.close()
            watch.close()


def _shows_enough(view: View, books: Books) -> bool:
    rows = [view.row(desk) for desk in DESKS]
    ends = any("out of tries" in story for story in list(books.stories)[-STORIES:])
    is_open = view.said is not None and view.said.breaker == OPEN
    return ends and is_open and all(any(row[place] for row in rows) for place in (1, 3, 4)) and len(view.rungs()) > 1


def picture(what: RenderableType, title: str, name: str, columns: int = DEMO_COLUMNS) -> str:
    """A terminal that shows this, in SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(what, markup=False, highlight=False) if isinstance(what, Text) else console.print(what)
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id=name)


if __name__ == "__main__":
    sys.exit(main())
