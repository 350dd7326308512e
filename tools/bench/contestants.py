"""The contestants of `make bench`: each moves letters from one queue to one exchange, with confirms, while it runs."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from tools.bench.letters import POLICIES
from tools.bench.wire import BenchError
from tools.brokers.node import free_port

ROUTER, BEFORE, SHOVEL, AGAIN = "router", "router_before", "amqp_shovel", "amqp_shovel_again"
RELAY, LOCAL, SILENT, REQUIRED = "aio_pika", "local_shovel", "router_no_journal", "router_journal_required"
NAMES: Final = (ROUTER, BEFORE, SHOVEL, AGAIN, RELAY, LOCAL, SILENT, REQUIRED)
SETTINGS: Final = {ROUTER: {}, BEFORE: {}, SILENT: {"JOURNAL": "off"}, REQUIRED: {"JOURNAL": "required"}}
INBOX: Final = "dlx-router.inbox"
SOURCE: Final = "bench.source"
INPUT: Final = "bench.in"
EXCHANGE: Final = "bench.dlx"
ROOT: Final = Path(__file__).parents[2]
_PREFETCH: Final = 1000
_STOP_S: Final = 60
_ONE: Final = f"""\
version: 1
policies:
  - name: bench
    match: "#"
    definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1}}
"""
_MIXED: Final = "version: 1\npolicies:\n" + "".join(
    f"  - name: bench-{number}\n    match: p{number}.#\n"
    f"    definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1"
    f"{', dead-letter-routing-key: order.created' if number % 2 else ''}}}\n"
    for number in range(POLICIES)
)
_ATTACHMENT: Final = f"attachments: [{{queue: {SOURCE}, mode: inbox, dead-letter-exchanges: {INPUT}}}]\n"


@dataclass(frozen=True, slots=True)
class Place:
    """A broker with its process, a folder for files of the contestants, and the trees of the routers.

    `router`: the command of the router; `before`: the folder of another tree, whose router is `router_before`.
    """

    amqp_url: str
    management_url: str
    broker_pid: int
    folder: Path
    router: tuple[str, ...]
    before: Path | None
    is_mixed: bool = False  # letters of many queues, and several policies


def contestant(name: str, place: Place, source: str) -> "Process | Shovel":
    """Return the contestant of this name, not started."""
    if name in SETTINGS:
        return router(place, source, name)
    if name == RELAY:
        relay = (sys.executable, str(Path(__file__).with_name("aio_pika_relay.py")), place.amqp_url, source, EXCHANGE)
        return Process(name, place.folder, relay, {})
    return Shovel(name, place, source)


def router(place: Place, source: str, name: str = ROUTER) -> "Process":
    """Return a router that reads its inbox, or else attaches the source."""
    policies = place.folder / f"policies-{source}{'-mixed' if place.is_mixed else ''}"
    policies.mkdir(exist_ok=True)
    template = _MIXED if place.is_mixed else _ONE
    text = template if source == INBOX else template + _ATTACHMENT
    (policies / "bench.yaml").write_text(text, encoding="utf-8")
    settings = {"AMQP_URL": place.amqp_url, "HTTP_PORT": str(free_port()), **SETTINGS[name]}
    environment = {f"DLX_ROUTER_{key}": value for key, value in settings.items()}
    command, tree = place.router, ROOT
    if name == BEFORE and place.before:
        command, tree = (sys.executable, "-m", "dlx_router"), place.before
        environment["PYTHONPATH"] = str(tree)
    return Process(name, place.folder, (*command, "run", "--policies", str(policies)), environment, tree)


def installed_router(command: str | None) -> tuple[str, ...]:
    """Return the given command, else the `dlx-router` beside this Python, else its module."""
    if command:
        return tuple(shlex.split(command))
    script = shutil.which("dlx-router", path=str(Path(sys.executable).parent))
    return (script,) if script else (sys.executable, "-m", "dlx_router")


class Process:
    """A contestant in a process of its own, which dies with the benchmark."""

    def __init__(
        self, name: str, folder: Path, argv: tuple[str, ...], environment: dict[str, str], tree: Path = ROOT
    ) -> None:
        """`environment` is added to this process's own without its DLX_ROUTER_ variables."""
        self.name, self._argv, self._environment, self._tree = name, argv, environment, tree
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it; it need not be ready."""
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        leash = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*leash, *self._argv], env=others | self._environment, cwd=self._tree, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def check(self) -> None:
        """Raise BenchError if it has ended."""
        if self._process and self._process.poll() is not None:
            raise BenchError(f"{self.name} ended with {self._process.returncode}:\n{self._tail()}")

    def await_ready(self) -> None:
        """Wait until the router answers on /readyz."""
        self._asked("readyz", lambda _: True)

    def settled(self) -> int | None:
        """Return how many letters the router settled, once none is in flight; None if it is no router."""
        if "DLX_ROUTER_HTTP_PORT" not in self._environment:
            return None
        return _total(self._asked("metrics", lambda text: not _total(text, "in_flight")), "settled_total")

    def _asked(self, page: str, is_it: Callable[[str], bool], within_s: float = 60) -> str:
        deadline = time.monotonic() + within_s
        url = f"http://127.0.0.1:{self._environment['DLX_ROUTER_HTTP_PORT']}/{page}"
        while True:
            self.check()
            with contextlib.suppress(OSError), build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
                if is_it(text := answer.read().decode()):
                    return str(text)
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: /{page} is not as wanted after {within_s:.0f} s:\n{self._tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it by SIGTERM; BenchError if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} did not end within {_STOP_S} s:\n{self._tail()}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _total(text: str, name: str) -> int:
    """Return the sum of a metric over its labels."""
    return sum(int(float(value)) for value in re.findall(rf"^dlx_router_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


class Shovel:
    """RabbitMQ's dynamic shovel, on-confirm: over AMQP and TCP as to another broker, or `local` inside the broker."""

    pid = None

    def __init__(self, name: str, place: Place, source: str) -> None:
        """Keep the routing key, as the other contestants do."""
        self.name = name
        self._management = place.management_url
        protocol = "local" if name == LOCAL else "amqp091"
        self._value: dict[str, str | int] = {
            "src-protocol": protocol, "src-uri": place.amqp_url, "src-queue": source,
            "dest-protocol": protocol, "dest-uri": place.amqp_url, "dest-exchange": EXCHANGE,
            "ack-mode": "on-confirm", "reconnect-delay": 1,
        }  # fmt: skip
        if name != LOCAL:  # which has a link credit of its own
            self._value["src-prefetch-count"] = _PREFETCH

    def start(self) -> None:
        """Give it to the broker; it may not run yet."""
        management(self._management, "PUT", "/api/parameters/shovel/%2F/bench", {"value": self._value})

    def check(self) -> None:
        """Do nothing: a broken shovel shows by moving nothing."""

    def settled(self) -> None:
        """Return None: a shovel counts nothing."""

    def stop(self) -> None:
        """Delete it."""
        management(self._management, "DELETE", "/api/parameters/shovel/%2F/bench")


def management(url: str, method: str, path: str, value: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Return the answer of RabbitMQ's management API, None if it has no body; a 404 is no error to DELETE."""
    parts = urlsplit(url)
    login = b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    data = None if value is None else json.dumps(value).encode()
    request = Request(f"http://{parts.hostname}:{parts.port}{path}", data, headers, method=method)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            text = answer.read()
    except HTTPError as error:
        if method == "DELETE" and error.code == 404:  # noqa: PLR2004 - not found
            return None
        raise BenchError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error
    return json.loads(text) if text else None
