"""Errors without code: each library with the line of docs/clients.md, on each Python that dlx-router-client is for.

What ends a handler is told and grouped; what a library acks, gives back or tries again by itself is no death.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.client import programs
from tests.client.programs import CLIENT, NEWEST, OLDEST, built
from tests.clients.conftest import missing
from tests.clients.sameness import HERE, Desk
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PAGE: Final = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
FOLDER: Final = HERE / "errors"
BUILD: Final = HERE.parents[1] / "build/clients"
EXTRAS: Final = "aio-pika,pika,faststream,celery,dramatiq"
POLICIES: Final = """
version: 1
policies: [{name: all, match: "#", definition: {max-delivery-attempts: 1}}]
"""
PATIENCE_S: Final = 2
SLOW_S: Final = 120  # six libraries begin at once, on a machine that has other work
# Texts of messages that each library can be given: see errors/failing.py
FAIL: Final = ["boom 1", "boom 2", "odd", "hostile", "fine", "again"]
GROUPS: Final = {
    ("failing.OutOfStock", "item <n>: none left"): 2,
    ("KeyError", "'warehouse'"): 1,
    ("failing.Hostile", ""): 1,
}


def block(name: str, folder: Path) -> str:
    """A block of the page, as a file."""
    match = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert match, f"docs/clients.md lacks <!-- {name} -->"
    file = folder / name
    file.write_text(match[1], encoding="utf-8")
    return str(file)


@pytest.fixture
def python() -> str:
    """This one, with this tree."""
    for name in ("aio_pika", "pika", "faststream", "celery", "dramatiq"):
        if find_spec(name) is None:
            missing(f"{name} is not installed; make test-clients installs it")
    return sys.executable


@pytest.fixture(scope="session", params=[OLDEST, NEWEST])
def other_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another one, with the wheel and the libraries that there are for it."""
    program = programs.python(request.param)
    if program is None:
        pytest.skip(f"there is no Python {request.param} here")
    wheel = built(CLIENT, tmp_path_factory.mktemp("wheel"))
    folder = BUILD / f"python{request.param}"
    inside = folder / "bin/python"
    if not inside.exists():
        programs.empty_environment(program, folder)
    try:
        programs.run(str(inside), "-m", "pip", "install", "--quiet", f"{wheel}[{EXTRAS}]")
    except AssertionError as error:
        missing(f"the libraries cannot be installed for Python {request.param}: {error}")
    programs.run(str(inside), "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(wheel))
    return str(inside)


@pytest.fixture
def desk(vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path) -> Desk:
    """A router that tries nothing again."""
    index = tmp_path / "index.sqlite"
    return Desk(vhost, start_router(POLICIES, INDEX_PATH=str(index)), amqp, index)


class Program:
    """A consumer as a process, and what it printed."""

    def __init__(self, log: Path, *argv: str, **env: str) -> None:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._log = log
        self._file = log.open("wb")
        self._process = subprocess.Popen(
            argv, env={**kept, "PYTHONUNBUFFERED": "1", **env}, cwd=FOLDER, stdout=self._file, stderr=self._file,
            start_new_session=True,
        )  # fmt: skip

    def text(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def took(self) -> list[str]:
        return [line.partition(" ")[2] for line in self.text().splitlines() if line.startswith("took ")]

    def close(self) -> None:
        """Ended as by SIGTERM; what has nothing left to do and takes its time (pools of Celery: 10 s) is killed."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._file.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """start(python, "x.py", …) → a running program; its log is shown where a test fails."""
    started: list[Program] = []

    def begin(*argv: str, **env: str) -> Program:
        started.append(Program(tmp_path / f"program{len(started)}.log", *argv, **env))
        return started[-1]

    yield begin
    for program in started:
        program.close()
        sys.stdout.write(program.text())


def grouped(desk: Desk, queue: str, deaths: int) -> dict[tuple[str, str], int]:
    """By type and message, as `GET /groups` shows them; declared ones only. Waits for so many letters in all."""
    desk.letters(deaths, queue=queue, state="dead", within=SLOW_S)
    groups = [group for group in desk.groups(queue) if group["reason"].startswith("application:")]
    assert {group["reason"] for group in groups} <= {"application:exception"}
    counts: Counter[tuple[str, str]] = Counter()
    for group in groups:  # the same error from two places is two groups
        counts[group["error_type"], group["message"]] += group["deaths"]
    return dict(counts)


def plain(desk: Desk, queue: str) -> int:
    """Letters that were rejected, and of which nothing is told."""
    return sum(
        group["deaths"] for group in desk.groups(queue) if group["reason"] == "rejected" and not group["error_type"]
    )


def frames(desk: Desk, queue: str) -> set[str]:
    """Where the errors were raised, by the records of the letters."""
    grave = f"DLQ.{queue}"
    records = [record(desk.amqp.take(grave)) for _ in range(desk.amqp.depth(grave))]
    return {entry["error"].get("frame", "") for entry in records if "error" in entry}


def raised_in(desk: Desk, queue: str) -> set[str]:
    """File and function of these."""
    return {re.sub(r".*/|:\d+", "", frame) for frame in frames(desk, queue)}


def held(desk: Desk, queue: str) -> int:
    """Messages in the queue or with its consumer, as the queue itself counts them: statistics are of a second ago."""
    totals = desk.vhost.get(f"queues/{desk.vhost.quoted}?disable_stats=true&enable_queue_totals=true")
    (mine,) = (entry for entry in totals if entry["name"] == queue)
    return int(mine["messages"])


def is_settled(desk: Desk, running: Program, queue: str, took: Callable[[], object], wanted: object) -> None:
    """All was taken as wanted, nothing is left in the queue, and nothing comes back of what its consumer had.

    The router tells of a death before its message is acked: Celery acks when its loop turns next, up to 10 s later.
    What was given back or is tried again may come after all deaths.
    """

    def as_wanted() -> bool:
        assert took() == wanted
        return True

    eventually(as_wanted, within=60)
    eventually(lambda: held(desk, queue) == 0, within=60)
    running.close()
    consistently(lambda: desk.amqp.depth(queue) == 0)
    as_wanted()


def publish(desk: Desk, queue: str, *texts: str) -> None:
    for text in texts:
        desk.amqp.publish(text, key=queue, content_type="text/plain")


class Handler(NamedTuple):
    """A consumer of each library. `more`: further texts that it can be given; `rejected`: how many it just rejects."""

    block: str
    program: str
    more: tuple[str, ...]
    rejected: int


HANDLERS: Final = {
    "faststream": Handler("faststream", "faststream_errors.py", ("no", "because", "hidden"), 2),
    "aio-pika callback": Handler("aio-pika", "aio_pika_errors.py", ("no", "cancel"), 2),
    "aio-pika iterator": Handler("aio-pika", "aio_pika_iterator.py", (), 0),
    "pika": Handler("pika", "pika_errors.py", ("no",), 1),
}
Begun = Callable[[], None]
"""A scene that was begun; called, it waits until it is over and looks at it. Several may be at work."""


def handler(desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path, name: str) -> Begun:
    _, program, more, rejected = HANDLERS[name]
    queue = desk.work(f"errors.{name.replace(' ', '.')}")
    running = start(python, program, desk.vhost.amqp_url, queue, block(HANDLERS[name].block, tmp_path))
    publish(desk, queue, *FAIL, *more)

    def ends() -> None:
        wanted = dict(GROUPS)
        if "because" in more:
            wanted["KeyError", "'warehouse'"] += 1
        assert grouped(desk, queue, sum(wanted.values()) + rejected) == wanted
        assert plain(desk, queue) == rejected
        again = 1 if program == "aio_pika_iterator.py" else 2  # given back, and no death
        taken = Counter({**dict.fromkeys([*FAIL, *more], 1), "again": again})
        is_settled(desk, running, queue, lambda: Counter(running.took()), taken)
        assert raised_in(desk, queue) == {"failing.py in handle"}

    return ends


@pytest.mark.parametrize("name", [*HANDLERS])
def test_what_ends_a_handler_is_told(
    desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path, name: str
) -> None:
    handler(desk, python, start, tmp_path, name)()


def celery(desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path, pool: str = "prefork") -> Begun:
    queue, more = desk.work("errors.celery"), ["no", "because", "tries"]
    env = {"TESTED_URL": desk.vhost.amqp_url, "TESTED_QUEUE": queue, "TESTED_BLOCK": block("celery", tmp_path)}
    options = f"--pool {pool} --concurrency 1 --without-gossip --without-mingle --without-heartbeat --loglevel INFO"
    running = start(python, "-m", "celery", "--app", "celery_errors", "worker", *options.split(), **env)
    start(python, "celery_errors.py", *FAIL, *more, **env)

    def ends() -> None:
        wanted = GROUPS | {("KeyError", "'warehouse'"): 3}
        assert grouped(desk, queue, sum(wanted.values()) + 1) == wanted
        assert plain(desk, queue) == 1
        retried = [("again", "0"), ("again", "1"), ("tries", "0"), ("tries", "1")]  # and no deaths
        is_settled(
            desk, running, queue, lambda: sorted(re.findall(r"took (again|tries) (\d)", running.text())), retried
        )
        rejected = {"celery_errors.py in take"} if pool == "prefork" else set()  # the reason's own did not come along
        assert raised_in(desk, queue) == {"failing.py in handle"} | rejected

    return ends


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_ends_a_task_of_celery_is_told(
    desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path, pool: str
) -> None:
    celery(desk, python, start, tmp_path, pool)()


def dramatiq(desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path) -> Begun:
    queue = "errors.dramatiq"
    running = start(python, "dramatiq_errors.py", desk.vhost.amqp_url, queue, block("dramatiq", tmp_path), *FAIL)

    def ends() -> None:
        assert grouped(desk, queue, sum(GROUPS.values())) == GROUPS
        failed = [text for text in FAIL if text != "fine"]
        taken = Counter([*(f"{text} 0" for text in FAIL), *(f"{text} 1" for text in failed)])
        is_settled(desk, running, queue, lambda: Counter(running.took()), taken)
        assert (held(desk, f"{queue}.DQ"), held(desk, f"{queue}.XQ")) == (0, 0)
        assert raised_in(desk, queue) == {"failing.py in handle"}

    return ends


def test_what_dramatiq_gives_up_is_told(desk: Desk, python: str, start: Callable[..., Program], tmp_path: Path) -> None:
    dramatiq(desk, python, start, tmp_path)()


def test_on_each_python_that_the_client_is_for_it_is_the_same(
    desk: Desk, other_python: str, start: Callable[..., Program], tmp_path: Path
) -> None:
    """All libraries beside one another; pools of Celery differ in nothing that a Python could change."""
    begun = [handler(desk, other_python, start, tmp_path, name) for name in HANDLERS]
    begun += [begin(desk, other_python, start, tmp_path) for begin in (celery, dramatiq)]
    for ends in begun:
        ends()


@pytest.mark.parametrize("name", ["faststream", "aio-pika", "pika", "celery", "dramatiq"])
def test_without_a_router_it_is_as_without_the_client(
    vhost: Vhost, amqp: Client, start: Callable[..., Program], tmp_path: Path, name: str, library: Callable[[str], Any]
) -> None:
    """Rejected into the dead-letter exchange of its queue, and the log says why nothing is told."""
    library(name.replace("-", "_"))
    if name == "dramatiq":
        queue = "errors.dramatiq"
        grave = f"{queue}.XQ"
    else:
        queue, grave = amqp.queue("errors.work", dead_letter_exchange="graves"), amqp.queue("grave")
        amqp.bind(grave, amqp.exchange("graves", "fanout"))
    given = (vhost.amqp_url, queue, block(name, tmp_path))
    if name == "celery":
        env = dict(zip(("TESTED_URL", "TESTED_QUEUE", "TESTED_BLOCK"), given, strict=True))
        options = "--pool solo --without-gossip --without-mingle --without-heartbeat"
        running = start(sys.executable, "-m", "celery", "--app", "celery_errors", "worker", *options.split(), **env)
        start(sys.executable, "celery_errors.py", "boom 1", **env)
    elif name == "dramatiq":
        running = start(sys.executable, "dramatiq_errors.py", *given, "boom 1")
    else:
        running = start(sys.executable, f"{name.replace('-', '_')}_errors.py", *given)
        amqp.publish("boom 1", key=queue, content_type="text/plain")
    eventually(lambda: amqp.exists(grave) and amqp.depth(grave) == 1, within=60)
    letter = amqp.take(grave)
    assert [(death["queue"], death["reason"]) for death in letter.deaths] == [(queue, "rejected")]
    assert "dlx-death" not in letter.headers
    eventually(lambda: f"a message of queue '{queue}' is rejected without its error" in running.text())
