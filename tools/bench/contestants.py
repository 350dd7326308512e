"""The contestants: each moves letters from one queue to one exchange, with confirms, while it is started."""

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from tools.bench.wire import BenchError
from tools.brokers.node import free_port

ROUTER, SHOVEL, RELAY, LOCAL = "router", "amqp_shovel", "aio_pika", "local_shovel"
SILENT, REQUIRED, PAIR = "router_no_journal", "router_journal_required", "two_routers"
AGAIN: Final = "amqp_shovel_again"  # the same as amqp_shovel: what lies between the two is noise of the machine
ROUTERS: Final = (ROUTER, SILENT, REQUIRED, PAIR)
NAMES: Final = (ROUTER, SHOVEL, AGAIN, RELAY, LOCAL, SILENT, REQUIRED, PAIR)
INBOX: Final = "dlx-router.inbox"
JOURNAL: Final = "dlx-router.journal"
SOURCE: Final = "bench.source"
INPUT: Final = "bench.in"
EXCHANGE: Final = "bench.dlx"
_PREFETCH: Final = 1000
_STOP_S: Final = 60
_ROOT: Final = Path(__file__).parents[2]
_POLICIES: Final = f"""\
version: 1
policies:
  - name: bench
    match: "#"
    definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1}}
"""
POLICIES: Final = 5  # of a mixed run; every second names the routing key too
_MIXED: Final = "version: 1\npolicies:\n" + "".join(
    f"  - name: bench-{number}\n    match: p{number}.#\n"
    f"    definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1"
    f"{', dead-letter-routing-key: order.created' if number % 2 else ''}}}\n"
    for number in range(POLICIES)
)
_ATTACHMENT: Final = f"attachments: [{{queue: {SOURCE}, mode: inbox, dead-letter-exchanges: {INPUT}}}]\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where it happens: one broker with its process, and a folder for what the contestants print and read.

    `shovel_url` is what the shovels connect by; without a host they stay inside the broker and need no socket.
    """

    amqp_url: str
    shovel_url: str
    management_url: str
    broker_pid: int
    folder: Path
    router: tuple[str, ...]
    is_mixed: bool = False  # letters of many queues, and several policies


class Contestant(Protocol):
    """Moves while it is started. Each of `pids` leads a session of its own; none: it runs inside the broker.

    `counted`: how many letters each of its routers says that it settled; none where it has no routers.
    """

    name: str

    @property
    def pids(self) -> tuple[int, ...]: ...
    def start(self) -> None: ...
    def counted(self) -> tuple[int, ...]: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


def contestant(name: str, place: Place, source: str) -> Contestant:
    """The contestant of this name, not started yet."""
    if name == PAIR:
        return Pair(name, place, source)
    if name in ROUTERS:
        return Process(name, place, *router(place, source, **_SETTINGS.get(name, {})))
    if name == RELAY:
        relay = (sys.executable, str(Path(__file__).with_name("aio_pika_relay.py")), place.amqp_url, source, EXCHANGE)
        return Process(name, place, relay, {})
    return Shovel(name, place, source)


_SETTINGS: Final = {SILENT: {"JOURNAL": "off"}, REQUIRED: {"JOURNAL": "required"}}


def router(place: Place, source: str, **settings: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment of the router, default settings: one policy, or several where it is mixed.

    An attachment, unless it reads its inbox. `settings` are named without their prefix.
    """
    policies = place.folder / f"policies-{source}{'-mixed' if place.is_mixed else ''}"
    policies.mkdir(exist_ok=True)
    template = _MIXED if place.is_mixed else _POLICIES
    text = template if source == INBOX else template + _ATTACHMENT
    (policies / "bench.yaml").write_text(text, encoding="utf-8")
    environment = {"DLX_ROUTER_AMQP_URL": place.amqp_url, "DLX_ROUTER_HTTP_PORT": str(free_port())}
    environment |= {f"DLX_ROUTER_{name}": value for name, value in settings.items()}
    return (*place.router, "run", "--policies", str(policies)), environment


def installed_router(command: str | None) -> tuple[str, ...]:
    """The command that was given, else the `dlx-router` of this Python, else its module."""
    if command:
        return tuple(shlex.split(command))
    script = shutil.which("dlx-router", path=str(Path(sys.executable).parent))
    return (script,) if script else (sys.executable, "-m", "dlx_router")


def await_ready(process: "Process", within_s: float = 30) -> None:
    """The router says on /readyz that it is ready; BenchError if it ends or takes too long."""
    deadline = time.monotonic() + within_s
    url = f"http://127.0.0.1:{process.environment['DLX_ROUTER_HTTP_PORT']}/readyz"
    while True:
        process.check()
        with contextlib.suppress(OSError), build_opener(ProxyHandler({})).open(url, timeout=5):
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the router is not ready after {within_s:.0f} s:\n{process.tail()}")
        time.sleep(0.05)


def settled(process: "Process", within_s: float = 30) -> int:
    """How many letters this router says that it settled, once it says that none is in flight."""
    deadline = time.monotonic() + within_s
    url = f"http://127.0.0.1:{process.environment['DLX_ROUTER_HTTP_PORT']}/metrics"
    while True:
        with build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
            text = answer.read().decode()
        if not _total(text, "in_flight"):
            return _total(text, "settled_total")
        if time.monotonic() > deadline:
            raise BenchError(f"{process.name} still has letters in flight after {within_s:.0f} s")
        time.sleep(0.05)


def _total(text: str, name: str) -> int:
    """The sum of a metric over its labels."""
    return sum(int(float(value)) for value in re.findall(rf"^dlx_router_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


class Process:
    """A contestant in a process of its own. It dies with the benchmark, whatever ends that."""

    def __init__(self, name: str, place: Place, argv: tuple[str, ...], environment: dict[str, str]) -> None:
        """`environment` is added to ours, from which every DLX_ROUTER_ variable is taken away."""
        self.name = name
        self.environment = environment
        self._argv = argv
        self._log = place.folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._process.pid,) if self._process else ()

    def counted(self) -> tuple[int, ...]:
        return (settled(self),) if "DLX_ROUTER_HTTP_PORT" in self.environment else ()

    def start(self) -> None:
        """Started, not necessarily ready."""
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        leash = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*leash, *self._argv], env=others | self.environment, cwd=_ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def check(self) -> None:
        """BenchError if it has ended."""
        if self._process and self._process.poll() is not None:
            raise BenchError(f"{self.name} ended with {self._process.returncode}:\n{self.tail()}")

    def stop(self) -> None:
        """In order by SIGTERM; killed, and an error, if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} did not end within {_STOP_S} s:\n{self.tail()}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def tail(self) -> str:
        """The last of what it printed."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


class Pair:
    """Two routers on one source, default settings but the key that replicas share."""

    def __init__(self, name: str, place: Place, source: str) -> None:
        """The key is a new one."""
        self.name = name
        key = place.folder / "key"
        key.write_text(secrets.token_hex(32), encoding="utf-8")
        self._both = [
            Process(f"{name}-{at}", place, *router(place, source, PROVENANCE_KEY_FILE=str(key))) for at in range(2)
        ]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for process in self._both for pid in process.pids)

    def start(self) -> None:
        """Both are started."""
        for process in self._both:
            process.start()

    def check(self) -> None:
        """BenchError if one of them has ended."""
        for process in self._both:
            process.check()

    def counted(self) -> tuple[int, ...]:
        return tuple(count for process in self._both for count in process.counted())

    def stop(self) -> None:
        """Both are gone, whatever either says."""
        with contextlib.ExitStack() as stack:
            for process in self._both:
                stack.callback(process.stop)


class Shovel:
    """RabbitMQ's own dynamic shovel, on-confirm: over AMQP as to another broker, or `local` inside the broker."""

    pids: tuple[int, ...] = ()

    def __init__(self, name: str, place: Place, source: str) -> None:
        """The exchange keeps the routing key, as for the other contestants."""
        self.name = name
        self._management = place.management_url
        protocol = "local" if name == LOCAL else "amqp091"
        self._value: dict[str, str | int] = {
            "src-protocol": protocol, "src-uri": place.shovel_url, "src-queue": source,
            "dest-protocol": protocol, "dest-uri": place.shovel_url, "dest-exchange": EXCHANGE,
            "ack-mode": "on-confirm", "reconnect-delay": 1,
        }  # fmt: skip
        if name != LOCAL:  # which has a link credit of its own
            self._value["src-prefetch-count"] = _PREFETCH

    def start(self) -> None:
        """The broker has taken it; it may not run yet."""
        management(self._management, "PUT", "/api/parameters/shovel/%2F/bench", {"value": self._value})

    def check(self) -> None:
        """A broken one shows by moving nothing."""

    def counted(self) -> tuple[int, ...]:
        return ()

    def stop(self) -> None:
        """Deleted."""
        management(self._management, "DELETE", "/api/parameters/shovel/%2F/bench")


def management(url: str, method: str, path: str, value: object = None) -> Any:  # noqa: ANN401 - any JSON
    """The answer of RabbitMQ's management API; None where it has no body. Nothing to delete is fine."""
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
