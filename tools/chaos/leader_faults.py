"""Chaos on a cluster of three nodes: the one that leads the inbox is killed or stopped, again and again."""

import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from tools.brokers.cluster import Cluster, name_of
from tools.brokers.node import Node
from tools.brokers.programs import Program
from tools.chaos.drain import drain, revive
from tools.chaos.faults import Fault
from tools.chaos.load import Load
from tools.chaos.report import Report
from tools.chaos.schedule import FLOWS_S, flows
from tools.chaos.testbed import INBOX, VHOST, Scene, soon, tuned

ROUTERS: Final = 2
RATE: Final = 300.0
SETTLED_S: Final = 300.0
KINDS: Final = {"leader killed": Node.kill, "leader stopped": Node.stop}


class ClusterScene(Scene):
    """Three nodes; routers and load know all of them."""

    def open_broker(self, program: Program) -> Node:
        """The first of three; the management API is asked there."""
        self.cluster = Cluster(program)
        for node in self.cluster.nodes:
            tuned(node)
        return self.cluster.nodes[0]

    def close_broker(self) -> None:
        """Nothing of them is left."""
        self.cluster.close()

    def hosts(self) -> str:
        """All three."""
        return ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in self.cluster.nodes)

    @property
    def urls(self) -> str:
        """For the load."""
        return " ".join(f"{node.amqp_base}/{VHOST}" for node in self.cluster.nodes)

    def leader(self) -> Node:
        """The node that leads the inbox, once each node has its replica of it."""

        def settled() -> str:
            inbox = self.api.get(f"queues/{VHOST}/{INBOX}").raise_for_status().json()
            return str(inbox["leader"]) if len(inbox.get("online", [])) == len(self.cluster.nodes) else ""

        return self.cluster.named(soon(settled, SETTLED_S) or name_of(self.node))


def run(program: Program, folder: Path, seed: int, seconds: float, version: str) -> Report:
    """Load, faults, drain, audit, as on one node."""
    with ExitStack() as stack:
        scene = ClusterScene(program, folder)
        stack.callback(scene.close)
        scene.replicas(ROUTERS)
        load = Load(scene.urls, RATE)
        load.start()
        stack.callback(load.close)
        report = Report(scene.node.version, version, seed, seconds / 60, (ROUTERS,))
        _break(scene, load, report, random.Random(seed))
        drain(scene, load, report)
        report.verdict = load.books.judge(report.allowed)
        return report


def _break(scene: ClusterScene, load: Load, report: Report, chance: random.Random) -> None:
    started = time.monotonic()
    window = scene.window() * ROUTERS
    while time.monotonic() - started < seconds_of(report):
        revive(scene, report)
        report.faults.append(fault := _attempt(scene, load, chance.choice(list(KINDS)), started))
        report.allowed += window
        print(fault, flush=True)
    report.seconds = time.monotonic() - started


def seconds_of(report: Report) -> float:
    """How long it breaks."""
    return report.minutes * 60


def _attempt(scene: ClusterScene, load: Load, kind: str, started: float) -> Fault:
    leader = scene.leader()
    begun = time.monotonic()
    KINDS[kind](leader)
    ended = time.monotonic()
    flow = soon(partial(flows, load, load.books.numbers), FLOWS_S, every=0.02)
    recovered = time.monotonic() - ended if flow else None
    leader.start()
    at = scene.cluster.nodes.index(leader)
    return Fault(begun - started, kind, at, ended - begun, recovered, None, f"node {at}")
