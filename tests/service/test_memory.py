"""What is kept of letters, names and headers that others choose has a bound in bytes, and letters go on meanwhile."""

import ast
import gc
import importlib
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import pika
import psutil
import pytest

import dlx_router
from dlx_router.broker.consumer import Consumer
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.journal.events import fragments
from dlx_router.wire import frames, properties, table
from tests.support.bulk import INBOX, rests
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.worker import NAMES, Session, Taken, place

PACKAGE: Final = Path(dlx_router.__file__).parent
RSS_MIB: Final = 200
LOT: Final = 100
POLICIES: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 30s, retry-on: [rejected], dead-letter-exchange: dead}
  - name: gone
    match: "gone.#"
    definition: {dead-letter-queue-type: classic, auto-create-dead-letter-resources: true, max-delivery-attempts: 1}
"""


# -- the law: what there is, and why it is bounded ----------------------------------------------------------------

# functools' caches are bounded in entries only: of these the keys come from this source, not from outside.
CACHES: Final = {
    "config/language/conditions.py:_environment": "no argument",
    "config/language/conditions.py:_error_type": "no argument",
    "config/language/conditions.py:_kinds": "no argument",
    "wire/frames.py:lenient": "classes of pamqp, named in our source",
    "wire/parser.py:_content_at": "two lengths of names; bounded in entries, and what it keeps is of one size",
}
ELSEWHERE: Final = ("spark", "client")  # other processes


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ELSEWHERE):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def _is_cache(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in {"lru_cache", "cache"}


def test_no_cache_without_a_bound_in_bytes_has_keys_from_outside() -> None:
    functions, decorators = set(), set()
    for name, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                caches = [decorator for decorator in node.decorator_list if _is_cache(decorator)]
                functions |= {f"{name}:{node.name}" for _ in caches}
                decorators |= {f"{name}:{cache.lineno}" for cache in caches}
    calls = {
        f"{name}:{node.lineno}"
        for name, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_cache(node)
    }
    assert functions == CACHES.keys()
    assert calls <= decorators


def test_the_bounds_of_a_process_leave_room_under_the_limit() -> None:
    """All of one vhost, filled to the brim, beside the 80 MiB of a router that has nothing to do."""
    code = "import dlx_router.cli.daemon, sys; print(*(name for name in sys.modules if name.startswith('dlx_router.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [importlib.import_module(name) for name in done.stdout.split()]  # all that a router's process has
    shared = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Bounded)}
    before = {id(item) for item in gc.get_objects() if isinstance(item, Bounded)}
    session = Session({})
    own = {id(item): item for item in gc.get_objects() if isinstance(item, Bounded) and id(item) not in before}
    assert len(shared) > 10
    assert len(own) > 6
    assert sum(cache._most_bytes for cache in (*shared.values(), *own.values())) <= 150 * MIB
    assert session.decider is not None


# -- floods of one desk, without a broker --------------------------------------------------------------------------


def _death(queue: str, exchange: str = "", keys: tuple[str, ...] = ("k",), reason: str = "rejected") -> bytes:
    entry = table.long_(b"count", 1) + table.longstr(b"reason", reason) + table.longstr(b"queue", queue)
    entry += table.timestamp(b"time", 1_795_239_999) + table.longstr(b"exchange", exchange)
    return entry + table.array_of_longstr(b"routing-keys", list(keys))


def _delivery(
    n: int, deaths: list[bytes], queue: str, key: str = "k", extra: bytes = b"", reason: str = "rejected", **props: Any
) -> frames.Delivery:
    headers = table.field_array(b"x-death", deaths) + extra
    for name, value in (("queue", queue), ("reason", reason), ("exchange", "")):
        headers += table.longstr(f"x-first-death-{name}".encode(), value)
    header = struct.pack(">HHQ", 60, 0, 1) + properties.build(headers=headers, **props)
    return frames.Delivery(1, b"c", n, False, INBOX.encode(), key.encode(), header, b"x")  # noqa: FBT003 - AMQP order


def _huge(n: int) -> frames.Delivery:
    """A whole frame of history."""
    return _delivery(n, [_death(f"{n}-{i}-{'x' * 200}") for i in range(380)], f"{n}-0-{'x' * 200}")


def _long(n: int) -> frames.Delivery:
    """As many deaths as are shared, of names as long as they may be."""
    names = [f"{n}-{i}-".ljust(250, "ü"[: i % 2] or "x") for i in range(8)]
    return _delivery(n, [_death(name[:120], exchange=name[:100], keys=(name[:100],)) for name in names], names[0][:120])


def _dressed(n: int) -> frames.Delivery:
    """Properties and headers of its own."""
    props: dict[str, Any] = {
        name: f"{n}".ljust(250, "x").encode() for name in ("user_id", "expiration", "content_type", "app_id", "type")
    }
    extra = table.longstr(f"h{n}".encode(), "v" * (n % 90))
    return _delivery(n, [_death("orders")], "orders", key=f"{n}".ljust(250, "k"), extra=extra, **props)


def _named(n: int) -> frames.Delivery:
    reason = f"application:{n}".ljust(250, "r")
    return _delivery(n, [_death(f"{n}".ljust(250, "q"), reason=reason)], f"{n}".ljust(250, "q"), reason=reason)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "count"), [(_huge, 250), (_long, 1500), (_dressed, 1500), (_named, 1500)])
def test_what_a_desk_keeps_of_hostile_letters_is_bounded_in_bytes(
    make: Callable[[int], frames.Delivery], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are made small, so that few letters do."""
    before = {id(item) for item in gc.get_objects() if isinstance(item, Bounded)}
    session = Session({"max-delivery-attempts": 5, "redelivery-delay": 5000})
    caches = [item for item in gc.get_objects() if isinstance(item, Bounded)]
    for cache in caches:
        monkeypatch.setattr(cache, "_most_bytes", cache._most_bytes // 16 if id(cache) in before else MIB // 2)
        cache.clear()
    gc.collect()
    process = psutil.Process()
    started = _rss_mib(process)
    consumer = cast("Consumer", Taken(NAMES.inbox))
    for n in range(count):
        job = session.decider.judge(make(n), consumer, place(NAMES.inbox), 0.0)
        session.encoder.tell(job)
        session.encoder.write(job, b"")
        if job.letter is not None and job.envelope is not None and job.decision is not None:
            ruling = session.decider.in_force.event_factory.decided(job.decision, job.copy, "p")
            fragments(job.letter, ruling).line("a", 1, first_ms=1, last_ms=1, crc32=1, size=1, props=job.envelope.props)
    assert all(cache.held_bytes <= cache._most_bytes for cache in caches)
    assert _rss_mib(process) - started < 30
    assert sum(len(kept) for kept in (session.metrics.decisions, session.metrics.deliveries)) < 50


def _rss_mib(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / MIB


# -- floods of a router ---------------------------------------------------------------------------------------------


def _published(amqp: Client, letters: Iterable[tuple[str, pika.BasicProperties]]) -> None:
    """Into the inbox, as somebody who may write there can: as fast as the broker takes them."""
    channel = amqp.connection.channel()
    channel.tx_select()
    for at, (key, given) in enumerate(letters):
        channel.basic_publish(INBOX, key, b"x", given)
        if at % 500 == 499:
            channel.tx_commit()
    channel.tx_commit()
    channel.close()


def _hostile(count: int) -> Iterator[tuple[str, pika.BasicProperties]]:
    """Each letter with another history, another reason, and properties, headers and a routing key of its own."""
    for n in range(count):
        names = [f"{n}-{i}-".ljust(240, "x") for i in range(n % 8 + 1)]
        deaths = [
            {"count": 1, "reason": f"application:{n}", "queue": name, "exchange": name, "routing-keys": [name]}
            for name in names
        ]
        first = dict.fromkeys(("x-first-death-queue", "x-first-death-exchange"), names[0])
        own = f"{n}".ljust(240, "y")
        yield (
            own,
            pika.BasicProperties(
                headers={"x-death": deaths, **first, "x-first-death-reason": f"application:{n}", f"h{n}": own},
                content_type=own,
                type=own,
                app_id=own,
                reply_to=own,
                message_id=own,
                correlation_id=own,
                expiration="600000".rjust(200, "0") if n % 2 else None,
            ),
        )


def _delay_s(amqp: Client, router: Router) -> float:
    """From the death of a good letter to its final queue."""
    began = time.monotonic()
    amqp.publish("good", key="good")
    amqp.fail("good")
    eventually(lambda: amqp.get("alive") is not None, 10, every=0.02)
    return time.monotonic() - began


def _prepared(amqp: Client, start_router: Callable[..., Router]) -> Router:
    for name in ("dead", "alive"):
        amqp.exchange(name, "fanout")
        amqp.queue(name)
        amqp.bind(name, name)
    amqp.queue("good", dead_letter_exchange=INBOX)
    good = "\n  - {name: good, queue: good, definition: {dead-letter-exchange: alive, max-delivery-attempts: 1}}\n"
    router = start_router(POLICIES.rstrip() + good, MAX_DEAD_LETTER_QUEUES="100000")
    assert _delay_s(amqp, router) < 5
    return router


def _flooded(amqp: Client, router: Router, count: int) -> None:
    """Some hundred hostile letters at a time, as fast as they are settled, and behind each lot a good letter."""
    process, lots, delays = psutil.Process(router.pid), _hostile(count), []
    for _ in range(0, count, LOT):
        _published(amqp, islice(lots, LOT))
        delays.append(_delay_s(amqp, router))
    rests(router)
    delays.append(min(_delay_s(amqp, router) for _ in range(3)))
    assert delays[-1] < 1
    assert median(delays) < 1, delays  # some may fall into a pause of a machine that does other things too
    assert _rss_mib(process) < RSS_MIB
    assert len(router.metrics()) < 1000


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_flood_of_letters_that_have_nothing_in_common(amqp: Client, start_router: Callable[..., Router]) -> None:
    _flooded(amqp, _prepared(amqp, start_router), 1500)
