"""Pictures of the console in README and docs: pages of a real router, taken by Chromium → docs/img/console-*.png.

Four queues fail for reasons of their own; some letters wait, some are dead. Needs playwright (extra `console-dev`) and
a Chromium of the system.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx
import pika

from tools.brokers import BrokerError, chosen, free_port
from tools.demo.shop import own_vhost

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "img"
WIDTH, HEIGHT = 1280, 800
PATIENCE_S: Final = 60.0
PICTURES: Final = ("console-overview", "console-group", "console-letter", "console-redrive")
POLICIES: Final = """\
version: 1
policies:
  - {name: everything, match: "#", definition: {max-delivery-attempts: 1, journal: {body: final}}}
  - name: payments
    match: "payments.#"
    priority: 1
    definition: {max-delivery-attempts: 2, redelivery-delay: 10m, outage: {deaths: 8, within: 1m, probe-every: 30s}}
"""


class Trouble(NamedTuple):
    """What consumers of a queue raise, and how many letters that costs."""

    queue: str
    error: str
    message: str
    frame: str
    letters: int


TROUBLES: Final = (
    Trouble("payments.capture", "TimeoutError", "gateway did not answer within 5 s", "gateway.py:88 in capture", 12),
    Trouble("mails.receipts", "SMTPRecipientsRefused", "550 mailbox {0} unavailable", "smtp.py:41 in send", 31),
    Trouble("stock.reservations", "OutOfStock", "no stock for sku {0}", "stock.py:130 in reserve", 17),
    Trouble("invoices.pdf", "TemplateError", "'vat' is undefined", "render.py:12 in page", 4),
)


def main() -> int:
    """0: taken · 2: no broker, Chromium or playwright to be had."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or find_spec("playwright") is None:
        print("Pictures of the console need playwright (extra console-dev) and chromium", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra

    try:
        with _router() as (url, vhost), sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            context = browser.new_context(
                base_url=url, viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"
            )
            page = context.new_page()
            for name, path in _pages(url, vhost).items():
                page.goto(path)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}.png")
                print(FOLDER / f"{name}.png")
            browser.close()
    except BrokerError as error:
        print(f"No broker: {error}", file=sys.stderr)
        return 2
    return 0


def _pages(url: str, vhost: str) -> dict[str, str]:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=10, trust_env=False) as api:
        groups = api.get("/groups").raise_for_status().json()["groups"]
        group = next(row["id"] for row in groups if row["failed_queue"] == "mails.receipts")
        letter = api.get("/letters", params={"queue": "stock.reservations"}).json()["letters"][0]["id"]
        wanted = {"vhost": vhost, "queue": "DLQ.mails.receipts", "dry_run": True, "rate": 0}
        task = api.post("/tasks", json=wanted).raise_for_status().json()["id"]
        _until(lambda: api.get(f"/tasks/{task}", params={"vhost": vhost}).json()["state"] in {"done", "stopped"})
    shown = ("/", f"/groups/{group}", f"/letters/{letter}", f"/tasks/{task}?vhost={quote(vhost, safe='')}")
    return dict(zip(PICTURES, shown, strict=True))


@contextmanager
def _router() -> Iterator[tuple[str, str]]:
    """Its address and vhost, once all letters lie where they end."""
    with (
        chosen() as broker,
        own_vhost(broker) as vhost,
        tempfile.TemporaryDirectory(prefix="dlx-router-pictures-") as work,
    ):
        (Path(work) / "policies").mkdir()
        (Path(work) / "policies" / "shop.yaml").write_text(POLICIES, encoding="utf-8")
        port = free_port()
        own = {"AMQP_URL": vhost.amqp_url, "HTTP_PORT": str(port), "INDEX_PATH": f"{work}/index.sqlite"}
        own["MANAGEMENT_URL"] = broker.management_url
        env = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        env |= {f"DLX_ROUTER_{key}": value for key, value in own.items()}
        argv = [sys.executable, "-m", "dlx_router", "run", "--policies", f"{work}/policies"]
        with (Path(work) / "log").open("wb") as log:
            process = subprocess.Popen(argv, env=env, cwd=ROOT, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _until(lambda: _status(f"{url}/readyz") == httpx.codes.OK)
            _fail(vhost.amqp_url)
            whole = sum(trouble.letters for trouble in TROUBLES)
            _until(lambda: len(_letters(url)) == whole and all(queue["depth"] is not None for queue in _lying(url)))
            yield url, vhost.name
        finally:
            process.terminate()
            process.wait(30)


def _fail(amqp_url: str) -> None:
    """Consumers reject what they get."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlx-router.inbox"}
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    for trouble in TROUBLES:
        channel.queue_declare(trouble.queue, durable=True, arguments=dead)
        for number in range(trouble.letters):
            headers = {"x-error-type": trouble.error, "x-error-frame": trouble.frame}
            headers["x-error-message"] = trouble.message.format(4711 + number)
            body = f'{{"order": {4711 + number}, "customer": "c-{number % 7}", "total": "{number * 7 + 12}.90"}}'
            how = pika.BasicProperties(headers=headers, content_type="application/json", delivery_mode=2)
            channel.basic_publish("", trouble.queue, body.encode(), how)
        for _ in range(trouble.letters):
            _until(lambda queue=trouble.queue: _rejected(channel, queue))  # type: ignore[misc]  # a default binds it
    connection.close()


def _rejected(channel: "pika.adapters.blocking_connection.BlockingChannel", queue: str) -> bool:
    got, _, _ = channel.basic_get(queue)
    if got is not None:
        channel.basic_reject(got.delivery_tag, requeue=False)
    return got is not None


def _status(url: str) -> int:
    try:
        return httpx.get(url, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def _letters(url: str) -> list[dict[str, object]]:
    letters: list[dict[str, object]] = (
        httpx.get(f"{url}/api/v1/letters?limit=1000", trust_env=False).json().get("letters", [])
    )
    return letters


def _lying(url: str) -> list[dict[str, object]]:
    queues: list[dict[str, object]] = httpx.get(f"{url}/api/v1/queues", trust_env=False).json().get("lying", [])
    return queues


def _until(look: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > ends:
            raise BrokerError("the letters did not come to rest in time")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
