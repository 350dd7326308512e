"""Connections of leases: bounded, of one queue each, and whose loss ends no lease of another queue."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.core.leases import NoRoom
from dlx_router.service.leases import holder as module
from dlx_router.service.leases.holder import LeaseConnections
from dlx_router.service.leases.scan import OWN_TIMEOUT_MS, KnownQueues, limits_in
from tests.core.core_samples import law, policy_set
from tests.leases.queue_in_memory import Queue

MAX, PER_QUEUE = 5, 2


async def history(chance: random.Random) -> None:
    queue, lost = Queue(), list[Consumer]()
    in_force: Any = SimpleNamespace(policies=policy_set())
    context: Any = SimpleNamespace(link=queue.link, names=None, in_force=lambda: in_force)
    connections = LeaseConnections(context, lambda: 1, lambda holder, _error: lost.append(holder))
    leased: list[Holder] = []
    for _ in range(60):
        match chance.choice(["scan", "scan", "scan", "end", "lose", "tidy"]):
            case "scan":
                name = chance.choice("abcd")
                try:
                    holder = await connections.channel(name)
                except NoRoom:
                    assert name not in {other.queue for other in leased}, "it has a connection"
                    continue
                shared = [other for other in leased if other._link is holder._link]
                assert {other.queue for other in shared} <= {name}
                links = {id(connection.link) for connection in connections._connections if connection.queue == name}
                assert not shared or len(links) == PER_QUEUE or len(connections._connections) == MAX
                if chance.random() < 0.7:
                    leased.append(holder)
                else:
                    connections.free(holder)
            case "end" if leased:
                connections.free(leased.pop(chance.randrange(len(leased))))
            case "lose" if leased:
                link = chance.choice(leased)._link
                expected = {other for other in leased if other._link is link}
                lost.clear()
                link.abort()
                assert expected <= {*lost}
                assert not {other for other in leased if other not in expected} & {*lost}
                for holder in expected:
                    leased.remove(holder)
                    connections.free(holder)
            case "tidy":
                connections.tidy()
        assert len([one for one in connections._connections if one.link.is_open]) <= MAX
        assert sum(connection.users for connection in connections._connections) == len(leased)
    await connections.close(1.0)
    assert not any(link.is_open for link in queue.links)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", MAX)
    monkeypatch.setattr(module, "PER_QUEUE", PER_QUEUE)
    monkeypatch.setattr(module, "IDLE_S", -1.0)
    monkeypatch.setattr(module, "QUIET_S", -1.0)


@pytest.mark.usefixtures("_small")
@law
@given(st.integers(0, 1 << 32))
def test_a_lost_connection_ends_only_what_it_holds_and_there_are_never_too_many(seed: int) -> None:
    asyncio.run(history(random.Random(seed)))


@pytest.mark.parametrize(
    ("facts", "version", "longest_s", "set_ms"),
    [
        ({"type": "quorum"}, (4, 3), 43_200, OWN_TIMEOUT_MS),
        ({"type": "quorum", "arguments": {"x-consumer-timeout": 20_000}}, (4, 3), 43_200, OWN_TIMEOUT_MS),
        ({"type": "classic"}, (4, 3), 43_200, None),
        ({}, (4, 3), 8, None),
        ({"type": "classic"}, (4, 0), 8, None),
        ({"type": "classic", "arguments": {"x-consumer-timeout": 60_000}}, (4, 0), 50, None),
        ({"type": "classic", "arguments": {"x-consumer-timeout": 60_000}}, (3, 10), 8, None),
    ],
)
def test_a_short_consumer_timeout_is_overridden_or_kept_to(
    facts: dict[str, Any], version: tuple[int, ...], longest_s: int, set_ms: int | None
) -> None:
    known = KnownQueues(None)  # type: ignore[arg-type]  # it asks nothing here
    known.learn("q", Exception("406 PRECONDITION_FAILED - Timeout value used: 10000 ms. This timeout value can be"))
    limits = limits_in("q", facts, version, known._broker_ms)
    assert (limits.longest_s, limits.consumer_timeout_ms) == (longest_s, set_ms)
