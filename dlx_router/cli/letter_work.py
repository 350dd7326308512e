"""`dlx-router letters work`: a program for each letter of a dead-letter queue; its exit code says what becomes of it.

No program is run for a letter that it would not see whole, because its exit code 0 deletes the letter.

Exit: 0 all were done, 1 some were not, 2 wrong use or cannot reach, 130 interrupted. What was leased and not ended
comes back by itself, whatever ends this program.
"""

import os
import shlex
import shutil
import subprocess  # nosec B404 - the program is named by who calls us
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from dlx_router.cli import output
from dlx_router.cli.api import BUSY, Api
from dlx_router.config.units import duration_ms

WAIT_S: Final = 2.0  # for a letter, before there are said to be none
FOLLOWED_S: Final = 20.0
LEAST_S: Final = 5.0
PATIENCE_S: Final = 60.0  # for a takeover or a restart of the router
AGAIN_S: Final = 0.5
INTERRUPTED: Final = 130
OK, GONE = 200, 410
# sysexits.h: EX_DATAERR, EX_TEMPFAIL
ACTIONS: Final[Mapping[int, str]] = {0: "done", 65: "park", 75: "release"}
UNSEEN: Final = "not shown to the program (body redacted; see --redacted-bodies), back when their lease ends"
TOLD: Final = ("id", "failed_queue", "reason", "receives", "until_ms")
REDACTED: Final = "DLX_LETTER_REDACTED"
SECRET: Final = ("DLX_ROUTER_API_TOKEN", "DLX_ROUTER_API_TOKEN_FILE")


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do with each letter, and with how many. `redacted`: the program may see less than the whole body."""

    program: str
    workers: int
    limit: int
    follow: bool
    redacted: bool = False


class _Failed(Exception):
    """The router does not do it, and asking again would not help."""


def run(reach: Callable[[], Api], queue: str, asked: Mapping[str, Any], orders: Orders) -> int:
    """Until there are no letters, or no more are wanted; the exit code."""
    try:
        argv, visibility_s = shlex.split(orders.program), duration_ms(asked["visibility"]) / 1000
    except ValueError as error:
        return output.wrong_use(f"--exec, --visibility: {error}")
    if visibility_s < LEAST_S:
        return output.wrong_use(f"--visibility {asked['visibility']}: {LEAST_S:g}s at least")
    if not argv or shutil.which(argv[0]) is None:
        return output.wrong_use(f"--exec {orders.program!r}: no such program; name one that can be run")
    work = _Work(queue, asked, orders, argv, visibility_s)
    apis = [reach() for _ in range(orders.workers)]  # each may end the command, so before any of them is at work
    with ThreadPoolExecutor(orders.workers) as pool:
        running = [pool.submit(work.run, api) for api in apis]
        try:
            for future in as_completed(running):
                future.result()
        except KeyboardInterrupt:
            work.tell()
            return INTERRUPTED
        except _Failed as error:
            return output.wrong_use(error)
        finally:
            work.stopping.set()  # whatever ended one of them: the pool waits for all, and some may follow for ever
    work.tell()
    return output.OK if work.is_well else output.FINDINGS


class _Work:
    """What the workers of one call have in common."""

    def __init__(
        self, queue: str, asked: Mapping[str, Any], orders: Orders, argv: list[str], visibility_s: float
    ) -> None:
        self.stopping = threading.Event()
        self._path = f"/queues/{quote(queue, safe='', errors='surrogateescape')}/receive"
        wait = FOLLOWED_S if orders.follow else WAIT_S
        self._asked, self._orders = {**asked, "max": 1, "wait": wait}, orders
        self._argv, self._visibility_s = argv, visibility_s
        self._lock = threading.Lock()
        self._begun = 0
        self._counts: Counter[str] = Counter()
        self._failed: set[str] = set()  # they come back, but not to this run; it would not end

    @property
    def is_well(self) -> bool:
        """Whether all letters were done."""
        return not self._counts.keys() - {"done"}

    def tell(self) -> None:
        """What became of the letters."""
        summary = ", ".join(f"{number} {how}" for how, number in self._counts.most_common())
        output.warn(summary or "No letters.")

    def run(self, api: Api) -> None:
        """One worker."""
        while not self.stopping.is_set() and self._may_begin():
            letters = _asked(api, self._path, self._asked, self.stopping).get("letters", ())
            if not letters:
                self._none_came()
                if self._orders.follow:
                    continue
                return
            if self._orders.follow or letters[0]["id"] not in self._failed:
                self._count(self._work_off(api, letters[0]))

    def _may_begin(self) -> bool:
        with self._lock:
            if self._orders.limit and self._begun >= self._orders.limit:
                return False
            self._begun += 1
            return True

    def _none_came(self) -> None:
        with self._lock:
            self._begun -= 1

    def _count(self, how: str) -> None:
        with self._lock:
            self._counts[how] += 1

    def _work_off(self, api: Api, letter: Mapping[str, Any]) -> str:
        path = f"/leases/{letter['handle']}"
        if _is_redacted(letter) and not self._orders.redacted:
            self._failed.add(letter["id"])
            return UNSEEN
        code = self._executed(api, path, letter)
        action = ACTIONS.get(code)
        if action is None:
            self._failed.add(letter["id"])
            return f"failed (exit {code}), back when their lease ends"
        answer = _asked(api, path, {"action": action}, self.stopping)
        ended = answer.get("ended")
        return {"done": "done", "parked": "parked", "released": "given back"}.get(ended or "", "too late")

    def _executed(self, api: Api, path: str, letter: Mapping[str, Any]) -> int:
        """The exit code; while the program runs its letter stays leased."""
        body: bytes | None = b64decode(letter["body"]) if letter.get("body") is not None else b""
        env = {name: value for name, value in os.environ.items() if name not in {*SECRET, REDACTED}}
        env |= {f"DLX_LETTER_{name.upper()}": _text(letter[name]) for name in TOLD}
        env |= {REDACTED: "1"} if _is_redacted(letter) else {}
        with subprocess.Popen(self._argv, stdin=subprocess.PIPE, env=env) as process:  # noqa: S603 - no shell  # nosec B603 - as said
            while True:
                try:
                    process.communicate(body, timeout=self._visibility_s / 2)
                except subprocess.TimeoutExpired:
                    body = None  # it has it, or is reading it
                    api.attempt(path, {"action": "extend", "visibility": self._visibility_s})
                else:
                    return process.returncode


def _asked(api: Api, path: str, body: Mapping[str, Any], stopping: threading.Event) -> dict[str, Any]:
    """The answer; asked again while the router is busy or away, which a lease allows. _Failed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        status, answer = api.attempt(path, dict(body))
        if status in {OK, GONE}:
            return answer
        if (status not in BUSY and status) or time.monotonic() > deadline or stopping.is_set():
            problems = "".join(f"\n  {problem}" for problem in answer.get("problems") or ())
            raise _Failed(f"{answer.get('error') or 'the router does not answer'}{problems}")
        time.sleep(AGAIN_S)


def _is_redacted(letter: Mapping[str, Any]) -> bool:
    """Whether the body is not as it lies in the queue: absent, or without what JSON pointers name."""
    places = letter.get("redacted") or ()
    return letter.get("body") is None or any(place.startswith("/") for place in places)


def _text(value: object) -> str:
    """Fit for an environment: without zero bytes."""
    return str(value).replace("\0", "")
