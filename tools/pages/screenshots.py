"""Draw the pictures of README and docs: `make screenshots` → docs/img.

demo.svg is `make demo` after some seconds; explain.svg and lint.svg are commands; console-*.png are pages of a real
router, taken by Chromium (needs playwright, extra `console-dev`). Pictures in SVG load no font and no script.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pika
from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.policies import BROKEN
from tools.brokers import BrokerError, chosen
from tools.demo.run import Router, prepared
from tools.demo.shop import connected, own_vhost

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "img"
COLUMNS: Final = 132  # no picture is wider
CONSOLE: Final = ("console-overview", "console-group", "console-letter", "console-redrive")
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
_POLICIES: Final = """\
version: 1
policies:
  - {name: everything, match: "#", definition: {max-delivery-attempts: 1, journal: {body: final}}}
  - name: payments
    match: "payments.#"
    priority: 1
    definition: {max-delivery-attempts: 2, redelivery-delay: 10m, outage: {deaths: 8, within: 1m, probe-every: 30s}}
"""
# Queue, and the error of its consumer; how many messages fail.
_TROUBLES: Final = (
    ("payments.capture", "TimeoutError", "gateway did not answer within 5 s", "gateway.py:88 in capture", 12),
    ("mails.receipts", "SMTPRecipientsRefused", "550 mailbox {0} unavailable", "smtp.py:41 in send", 31),
    ("stock.reservations", "OutOfStock", "no stock for sku {0}", "stock.py:130 in reserve", 17),
    ("invoices.pdf", "TemplateError", "'vat' is undefined", "render.py:12 in page", 4),
)


def command(name: str) -> str:
    """Return a picture of what is typed and printed."""
    typed = COMMANDS[name].removesuffix(" || true")
    with tempfile.TemporaryDirectory(prefix="dlx-router-screenshots-") as work:
        (Path(work) / "policies").symlink_to(ROOT / "policies")
        (Path(work) / "my-policies").mkdir()
        (Path(work) / "my-policies" / "orders.yaml").write_text(_BROKEN, encoding="utf-8")
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        argv = ["bash", "-c", _SHIM.format(python=sys.executable, line=COMMANDS[name])]
        env = {**others, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}
        done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, check=True, timeout=60)
    shown = f"{done.stdout}{done.stderr}".rstrip()
    columns = min(max([80, *map(len, shown.splitlines())]), COLUMNS)
    return picture(Text.assemble((f"$ {typed}\n", "bold"), shown), typed, name, columns)


def demo() -> str:
    """Return a picture of the demo at the end of its outage."""
    with prepared(Console(file=io.StringIO()), 30, []) as (running, (publish_s, _)):
        try:
            running.shop.open()
            running.run(publish_s, 0)
            return picture(running.picture(), "make demo", "demo")
        finally:
            running.shop.close()


def picture(what: RenderableType, title: str, name: str, columns: int = 100) -> str:
    """Return a terminal that shows this, as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(what, markup=False, highlight=False) if isinstance(what, Text) else console.print(what)
    return console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id=name)


def console() -> None:
    """Write the pictures of the console: four queues fail, each for a reason of its own."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with (
        chosen() as broker,
        own_vhost(broker) as vhost,
        tempfile.TemporaryDirectory(prefix="dlx-router-pictures-") as work,
        sync_playwright() as playwright,
    ):
        (Path(work) / "policies").mkdir()
        (Path(work) / "policies/shop.yaml").write_text(_POLICIES, encoding="utf-8")
        router = Router(vhost.amqp_url, Path(work), {"MANAGEMENT_URL": broker.management_url})
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            router.start()
            _fail(vhost.amqp_url)
            page = browser.new_page(base_url=router.url, viewport={"width": 1280, "height": 800}, color_scheme="light")
            for name, path in zip(CONSOLE, _pages(router.url, vhost.name), strict=True):
                page.goto(path, wait_until="networkidle")
                page.screenshot(path=FOLDER / f"{name}.png")
        finally:
            browser.close()
            router.kill()


def _fail(amqp_url: str) -> None:
    """Publish messages and reject each."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlx-router.inbox"}
    with connected(amqp_url) as channel:
        for queue, error, message, frame, count in _TROUBLES:
            channel.queue_declare(queue, durable=True, arguments=dead)
            for number in range(count):
                own = {"x-error-type": error, "x-error-frame": frame, "x-error-message": message.format(4711 + number)}
                body = f'{{"order": {4711 + number}, "customer": "c-{number % 7}", "total": "{number * 7 + 12}.90"}}'
                how = pika.BasicProperties(headers=own, content_type="application/json", delivery_mode=2)
                channel.basic_publish("", queue, body.encode(), how)
            for method, _, _ in channel.consume(queue, inactivity_timeout=10):
                channel.basic_reject(method.delivery_tag, requeue=False)
                if method.delivery_tag % count == 0:
                    break
            channel.cancel()


def _pages(url: str, vhost: str) -> tuple[str, ...]:
    """Return the paths of the pages that are shown, once all messages are at their ends."""
    with httpx.Client(base_url=f"{url}/api/v1", timeout=10, trust_env=False) as api:

        def get(path: str, **asked: Any) -> Any:  # noqa: ANN401 - JSON
            return api.get(path, params=asked).raise_for_status().json()

        total = sum(count for *_, count in _TROUBLES)
        _until(lambda: len(get("/letters", limit=1000)["letters"]) == total)
        _until(lambda: all(queue["depth"] is not None for queue in get("/queues")["lying"]))
        group = next(row["id"] for row in get("/groups")["groups"] if row["failed_queue"] == "mails.receipts")
        letter = get("/letters", queue="stock.reservations")["letters"][0]["id"]
        wanted = {"vhost": vhost, "queue": "DLQ.mails.receipts", "dry_run": True, "rate": 0}
        task = api.post("/tasks", json=wanted).raise_for_status().json()["id"]
        _until(lambda: get(f"/tasks/{task}", vhost=vhost)["state"] in {"done", "stopped"})
        return "/", f"/groups/{group}", f"/letters/{letter}", f"/tasks/{task}?vhost={quote(vhost, safe='')}"


def _until(look: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not look():
        if time.monotonic() > ends:
            raise BrokerError("the messages did not come to rest in time")
        time.sleep(0.1)


def main() -> int:
    """0: drawn · 2: wrong use, or no broker."""
    names = ("demo", *COMMANDS, "console")
    parser = argparse.ArgumentParser(description="Draw the pictures of README and docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*names, []], help=f"{', '.join(names)} (all)")
    try:
        for name in parser.parse_args().names or names:
            if name == "console":
                console()
            else:
                (FOLDER / f"{name}.svg").write_text(demo() if name == "demo" else command(name), encoding="utf-8")
            print(name)
    except BrokerError as error:
        print(f"no broker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
