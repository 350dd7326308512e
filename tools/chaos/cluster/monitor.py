"""Looks at everything once a second, feeds the laws, and writes down what there is to see when letters stand still."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx

from tools.brokers.node import Node
from tools.brokers.programs import BrokerError
from tools.chaos.cluster.invariants import DeadLetterStages, Readiness, Sample, Stages, Stand, Standstills
from tools.chaos.cluster.load import Load
from tools.chaos.cluster.schedule import NODES
from tools.chaos.cluster.testbed import ROUTER_INBOX, VHOST, NodesScene

EVERY_S: Final = 1.0
ANSWER_S: Final = 0.8
STAGES_S: Final = 2.0
STAGES_AFTER_S: Final = 4.0
STANDS_S: Final = 20.0
MOST_WRITTEN: Final = 12
SETTLED: Final = "dlx_router_settled_total{"
OF_QUEUES: Final = "name type state leader consumers messages_ready messages_unacknowledged"
OF_CONSUMERS: Final = "queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status"
RAFT: Final = f"""
{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{VHOST}">>, queue, <<"{ROUTER_INBOX}">>)),
ra:member_overview({{element(1, amqqueue:get_pid(Q)), node()}}, 10000).
"""
ASKED: Final = (
    ("list_queues", "-p", VHOST, "--timeout", "15", *OF_QUEUES.split()),
    ("list_consumers", "-p", VHOST, "--timeout", "15", *OF_CONSUMERS.split()),
    ("list_connections", "pid", "name", "user", "state", "channels"),
    ("cluster_status",),
    ("eval", RAFT),  # leader, ready and checked out, active consumers, as this node's replica of the inbox has it
)


class Watch:
    """In a thread of its own from `start` to `close`. `fault` is what the faults' thread says is on."""

    def __init__(self, scene: NodesScene, load: Load, folder: Path, log: Callable[[str], None]) -> None:
        self._scene, self._load, self._folder, self._log = scene, load, folder, log
        self.fault = "before the first fault"
        self.down: set[int] = set()  # nodes that a fault holds down
        self.standstills, self.readiness = Standstills(), Readiness()
        self._stages, self._staged = DeadLetterStages(), threading.Thread(target=self._look_at_stages, daemon=True)
        self.written: list[str] = []
        self._http = [httpx.Client(timeout=ANSWER_S, trust_env=False) for _ in scene.routers]
        self._pool = ThreadPoolExecutor(NODES + 2 * len(scene.routers))
        self._settled = [0.0] * len(scene.routers)
        self._writing: threading.Thread | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Looks begin."""
        self._thread.start()
        self._staged.start()

    def close(self) -> None:
        """The last look is done, and what stood is written down."""
        self._over.set()
        self._thread.join(30)
        self._staged.join(15)
        if self._writing:
            self._writing.join(120)
        self.standstills.end()
        self._pool.shutdown(cancel_futures=True)
        for client in self._http:
            client.close()

    def up(self) -> tuple[bool, ...]:
        """Which nodes run and talk with their clients."""
        return tuple(at not in self.down and self._load.main.serves(at) for at in range(NODES))

    def _run(self) -> None:
        with (self._folder / "samples.log").open("w", encoding="utf-8") as log:
            while not self._over.wait(EVERY_S):
                sample = self._sample()
                self.standstills.feed(sample)
                wrong = len(self.readiness.seconds)
                self.readiness.feed(sample, stands=self.standstills.alone)
                vain = " READY IN VAIN" if len(self.readiness.seconds) > wrong else ""
                stands = " ".join(
                    f"{stand.source}={stand.seconds:.0f}/{stand.alone_s:.0f}" for stand in self._standing(3.0)
                )
                print(
                    f"{sample.at_s:.1f} up={sample.up} ready={sample.ready} held={sample.held}"
                    f" settled={sample.settled:.0f} {sample.fault}{vain} {stands}"
                    f" {sorted(sample.broker_holds) or ''} {sorted(sample.silent) or ''}",
                    file=log,
                    flush=True,
                )
                self._write_down()

    def _sample(self) -> Sample:
        looks = [self._pool.submit(self._ask, at) for at in range(len(self._http))]
        ready = tuple(look.result() for look in looks)
        now_s = time.time()
        return Sample(
            at_s=now_s,
            fault=self.fault,
            up=self.up(),
            waits=dict(self._load.main.books.waits),
            control=dict(self._load.control.books.waits),
            settled=sum(self._settled),
            held=self._load.held(),
            ready=ready,
            broker_holds=self._stages.standing(now_s),
            silent=self._stages.silent(now_s),
        )

    def _look_at_stages(self) -> None:
        """Only while something stands: it costs a node the start of a program."""
        while not self._over.wait(STAGES_S):
            up = [at for at, is_up in enumerate(self.up()) if is_up]
            look: Stages | None = Stages({}, frozenset())
            if up and self._standing(STAGES_AFTER_S):
                look = self._scene.stages(VHOST, up[0])
            if look is not None:
                self._stages.feed(time.time(), look)

    def _ask(self, at: int) -> int:
        base = f"http://127.0.0.1:{self._scene.routers[at].port}"
        status = 0
        with contextlib.suppress(httpx.HTTPError):
            status = self._http[at].get(f"{base}/readyz").status_code
            lines = self._http[at].get(f"{base}/metrics").text.splitlines()
            self._settled[at] = sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(SETTLED))
        return status

    def _standing(self, least_s: float) -> list[Stand]:
        return [stand for stand in self.standstills.standing if stand.seconds > least_s]

    # -- evidence ---------------------------------------------------------------------------------------------------

    def _write_down(self) -> None:
        busy = self._writing is not None and self._writing.is_alive()
        stands = self._standing(STANDS_S)
        if not stands or busy or len(self.written) >= MOST_WRITTEN:
            return
        name = f"standstill-{len(self.written)}.txt"
        self.written.append(name)
        head = [_clock(), f"fault: {self.fault}, nodes up: {self.up()}", *map(str, stands)]
        self._log(f"{name}: {head[1]}; {'; '.join(head[2:])}")
        self._writing = threading.Thread(target=self._evidence, args=(self._folder / name, head), daemon=True)
        self._writing.start()

    def _evidence(self, file: Path, head: list[str]) -> None:
        with file.open("w", encoding="utf-8") as out:
            print(*head, sep="\n", file=out)
            for at, router in enumerate(self._scene.routers):
                for path in ("/readyz", "/api/v1/status"):
                    print(f"\n== router {at} {path}\n{_got(router.port, path)}", file=out, flush=True)
                print(f"\n== router {at}, its log\n{router.output[-3000:]}", file=out, flush=True)
            asked = [at for at in range(NODES) if at not in self.down]
            with ThreadPoolExecutor(NODES) as pool:  # one after another they would tell of different minutes
                for answer in pool.map(self._node, asked):
                    print(answer, file=out, flush=True)

    def _node(self, at: int) -> str:
        node = self._scene.nodes[at]
        answers = [f"\n== node {at}, {_clock()}: {' '.join(words)}\n{_ctl(node, words)}" for words in ASKED]
        return "\n".join((*answers, f"\n== node {at}, its log\n{node.log[-3000:]}"))


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _got(port: int, path: str) -> str:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5, trust_env=False)
    except httpx.HTTPError as error:
        return repr(error)
    return f"{answer.status_code} {answer.text[:4000]}"


def _ctl(node: Node, words: tuple[str, ...]) -> str:
    try:
        return node.rabbitmqctl(*words)
    except (BrokerError, OSError, TimeoutError) as error:
        return f"{error!r}"[:500]
    except Exception as error:  # noqa: BLE001 - subprocess's timeout, and whatever else: it is evidence too
        return f"{error!r}"[:500]
