"""The rate with 1, 2 and 4 inbox shards on three nodes, by one router and by three that share them."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from typing import Any, Final

from dlx_router.core.inbox_shards import shard_of
from dlx_router.core.names import Names
from tests.support.router import Router
from tools.bench.contestants import management
from tools.bench.letters import KEY
from tools.bench.wire import BenchError, Wire
from tools.brokers.cluster import Cluster
from tools.brokers.programs import provide
from tools.scale.bench import Bench, Died, Row, patiently, rate, started

SHARDS: Final = (1, 2, 4)
ROUTERS: Final = (1, 3)
QUEUES: Final = [f"wq{number:04}" for number in range(64)]
TARGET: Final = "scale.dead"
BEGUN: Final = 0.1  # of the letters: then routers have started
POLICY: Final = """\
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 1, dead-letter-exchange: scale.dead}}
"""


def measure(bench: Bench) -> Iterator[Row]:
    """Each time all letters lie in the inboxes first, those of a queue in its own; the first tenth is a start."""
    key = bench.folder / "key"
    key.write_text("k" * 32, encoding="utf-8")
    cluster = Cluster(provide(bench.version))
    try:
        for shards, routers in product(SHARDS, ROUTERS):
            name = f"s{shards}r{routers}"
            _vhost(cluster.nodes[0], name)
            with ExitStack() as stack:
                some = [
                    stack.enter_context(_router(bench, cluster, f"{name}-{at}", shards, vhost=name))
                    for at in range(routers)
                ]
                speed = _rate(bench, cluster, some, shards, name)
                led = ", ".join(f"{number}" for _, number in sorted(_leaders(cluster, shards, name).items()))
            plural = "router" if routers == 1 else "routers"
            yield Row(f"{shards} × inbox, {routers} {plural} (inboxes led by the nodes: {led})", f"{speed:,.0f}/s")
    finally:
        cluster.close()


def _vhost(node: Any, name: str) -> None:  # noqa: ANN401 - a node of tools/brokers
    management(node.management_url, "PUT", f"/api/vhosts/{name}", {})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management(node.management_url, "PUT", f"/api/permissions/{name}/guest", everything)


def _router(bench: Bench, cluster: Cluster, name: str, shards: int, *, vhost: str) -> Any:  # noqa: ANN401 - a context manager
    """It begins with another node than the one before it."""
    at = int(name.rpartition("-")[2])
    hosts = [f"127.0.0.1:{node.ports['amqp']}" for node in (*cluster.nodes[at:], *cluster.nodes[:at])]
    url = f"amqp://guest:guest@{','.join(hosts)}/{vhost}"
    env = {"AMQP_URL": url, "INBOX_SHARDS": str(shards), "PROVENANCE_KEY_FILE": str(bench.folder / "key")}
    return bench.router(cluster.nodes[at], POLICY, name, **env)


def _rate(bench: Bench, cluster: Cluster, some: list[Router], shards: int, vhost: str) -> float:
    names, per_shard = Names(shards=shards), Counter(shard_of(queue, shards) for queue in QUEUES)
    with Wire(f"{cluster.nodes[0].amqp_base}/{vhost}") as wire:
        wire.exchange(TARGET, "topic")
        wire.queue(TARGET, {"x-queue-type": "quorum"})
        wire.bind(TARGET, TARGET, "#")
        started(some[0])
        some[0].stop()  # all of ours is declared
        total = 0
        for shard, queues in per_shard.items():
            here = [queue for queue in QUEUES if shard_of(queue, shards) == shard]
            wire.fill(names.inboxes[shard], KEY, count := bench.size * queues // len(QUEUES), Died(*here))
            total += count
        for router in some:
            router.start(wait=False)
        first, began = _moved(wire, total, BEGUN)
        last, ended = _moved(wire, total, 1.0)
    bench.say(f"{shards} shards, {len(some)} routers: {rate(last - first, ended - began)}")
    return (last - first) / (ended - began)


def _moved(wire: Wire, total: int, share: float) -> tuple[int, float]:
    """How many have arrived, and when, once it is this share of them."""
    least = int(total * share)
    patiently(lambda: wire.depth(TARGET)[0] >= least, f"{least} letters do not arrive", 300 + total / 200)
    return wire.depth(TARGET)[0], time.monotonic()


def _leaders(cluster: Cluster, shards: int, vhost: str) -> dict[str, int]:
    """Node → how many inboxes it leads."""
    queues = management(cluster.nodes[0].management_url, "GET", f"/api/queues/{vhost}")
    inboxes = [queue for queue in queues if queue["name"] in Names(shards=shards).inboxes]
    if len(inboxes) != shards:
        raise BenchError(f"{len(inboxes)} inboxes stand, not {shards}")
    nodes = {node for queue in inboxes for node in queue["members"]}
    return {node: sum(queue["leader"] == node for queue in inboxes) for node in nodes}
