"""Three nodes and two vhosts on them: one with two routers, and beside it the control, the same queues without any.

Both vhosts meet the same faults at the same moments, so what the control loses is what the broker loses by itself.
"""
# ruff: noqa: ANN401 - pika ships no types

import contextlib
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pika

from tests.support.router import Router
from tools.brokers.cluster import Cluster
from tools.brokers.node import Node
from tools.brokers.programs import BrokerError, Program
from tools.chaos.cluster.accounting import ATTACHED, ENDS, INBOX, NAMED, RETRY, WAYS, Way
from tools.chaos.cluster.invariants import Stage, Stages
from tools.chaos.cluster.schedule import ROUTERS, Part
from tools.chaos.testbed import EVERYTHING, OURS_ALONE, USER, tuned
from tools.journal import events

VHOST: Final = "nodes"
CONTROL: Final = "control"
ROUTER_INBOX: Final = "dlx-router.inbox"
LIES_MS: Final = 1000  # in a source, before it expires
WAITS_MS: Final = 300
HEARTBEAT_S: Final = 5
PREFETCH: Final = 200
_ATTACHED: Final = [way.source for way in WAYS if way.route == ATTACHED]
_ATTENDS: Final = "  - {{queue: {0}, accept-delivery-limit: true, dead-letter-exchanges: []}}\n"
_ENDS: Final = "  - {{name: {0}, queue: {0}, definition: {{dead-letter-exchange: ends}}}}\n"
POLICIES: Final = f"""version: 1
attachments:
{"".join(map(_ATTENDS.format, _ATTACHED))}
policies:
{"".join(map(_ENDS.format, _ATTACHED))}
  - {{name: dead, match: "dead.#", definition: {{dead-letter-exchange: ends}}}}
  - {{name: retry, match: "retry.#", definition: {{max-delivery-attempts: 3, redelivery-delay: 300ms}}}}
"""
_HOPS: Final = (ENDS, *(f"{way.source}.wait" for way in WAYS if way.route == RETRY and way.classic))
ALIGN: Final = f"""
Named = fun(Vhost, Name) -> {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(Vhost, queue, Name)), Q end,
{{ok, _, {{_, Leader}}}} = ra:members(amqqueue:get_pid(Named(<<"{VHOST}">>, <<"{ROUTER_INBOX}">>))),
Theirs = [Named(<<"{CONTROL}">>, Name) || Name <- [{", ".join(f'<<"{name}">>' for name in _HOPS)}]],
{{Leader, [rabbit_quorum_queue:transfer_leadership(Queue, Leader) || Queue <- Theirs]}}.
"""
LEAD_ANEW: Final = """
{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"VHOST">>, queue, <<"QUEUE">>)),
{ok, Members, {_, Leader}} = ra:members(amqqueue:get_pid(Q)),
[Next | _] = [Node || {_, Node} <- Members, Node =/= Leader],
rabbit_quorum_queue:transfer_leadership(Q, Next).
"""
# Of each quorum queue: what died and lies there; and whether it has a leader that can commit.
STAGES: Final = """
Look = fun(State) ->
    {element(1, rabbit_fifo:query_stat_dlx(State)), maps:get(smallest_raft_index, rabbit_fifo:overview(State), 0)}
end,
Queues = [{element(4, amqqueue:get_name(Q)), {element(1, amqqueue:get_pid(Q)), node()}} ||
    Q <- rabbit_amqqueue:list(<<"VHOST">>), amqqueue:get_type(Q) =:= rabbit_quorum_queue],
Ready = {rabbit_fifo, query_messages_ready, []},
Asked = [{Name, rpc:async_call(node(), ra, consistent_query, [Id, Ready, 2000])} || {Name, Id} <- Queues],
{stages, [{Name, Many, Oldest} ||
    {Name, Id} <- Queues,
    {ok, {_, {Many, Oldest}}, _} <- [catch ra:local_query(Id, Look, 1000)],
    Many > 0],
 silent, [Name || {Name, Key} <- Asked, element(1, rpc:yield(Key)) =/= ok]}.
"""
_STAGE: Final = re.compile(r'<<"([^"]*)">>,\s*(\d+),\s*(\d+)')
_NAME: Final = re.compile(r'<<"([^"]*)">>')
_QUORUM: Final = {"x-queue-type": "quorum", "x-queue-leader-locator": "balanced"}
_AT_LEAST_ONCE: Final = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


class NodesScene:
    """A cluster, its queues, two routers. `folder` keeps logs and policies."""

    def __init__(self, program: Program, part: Part, folder: Path) -> None:
        self.folder = folder
        self.routers: list[Router] = []
        self._password = secrets.token_hex(8)
        self.cluster = Cluster(program, config={"cluster_partition_handling": part.strategy})
        try:
            for node in self.nodes:
                tuned(node)
            self._set_up()
        except BaseException:
            self.cluster.close()
            raise

    @property
    def nodes(self) -> list[Node]:
        """All three."""
        return self.cluster.nodes

    def url(self, vhost: str, node: int) -> str:
        """Straight to one node, with all rights; what is silent for a few seconds is given up."""
        query = f"heartbeat={HEARTBEAT_S}&stack_timeout=4&socket_timeout=3&connection_attempts=1"
        return f"{self.nodes[node].amqp_base}/{vhost}?{query}"

    def start_routers(self) -> None:
        """Both, ready when this returns."""
        hosts = ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in self.nodes)
        for at in range(ROUTERS):
            router = Router(
                amqp_url=f"amqp://{USER}:{self._password}@{hosts}/{VHOST}",
                management_url=f"http://{USER}:{self._password}@{self._management_hosts()}",
                policies=self.folder / "policies",
                log=self.folder / f"router-{at}.log",
                env={"HEARTBEAT": "2", "PREFETCH": str(PREFETCH), "PROVENANCE_KEY_FILE": str(self.folder / "key")},
            )
            self.routers.append(router)
            router.start(within=90)

    def _management_hosts(self) -> str:
        """All three where the router takes several, else the first."""
        from dlx_router.config.environment.broker_url import management_url  # noqa: PLC0415 - the router's own word on this alone

        every = ",".join(f"127.0.0.1:{node.ports['management']}" for node in self.nodes)
        try:
            management_url(f"http://a:b@{every}")
        except ValueError:
            return every.partition(",")[0]
        return every

    def tick_s(self) -> str:
        """net_ticktime, as a node says it."""
        return self.nodes[0].rabbitmqctl("eval", "net_kernel:get_net_ticktime().").strip()

    def obeys(self) -> bool:
        """This RabbitMQ has the code that autoheal needs; without it the setting is read and nothing is done by it."""
        return "true" in self.nodes[0].rabbitmqctl("eval", "code:which(rabbit_autoheal) =/= non_existing.")

    def align(self) -> str:
        """Where the control's classic queues dead-letter to, the node leads that leads the router's inbox. → who leads.

        The hop out of a classic queue loses what it sends to a leader that is away, so both must have the same one.
        """
        return self._eval(ALIGN)

    # -- queues -------------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        base = f"{self.nodes[0].management_url}/api/"
        with httpx.Client(base_url=base, timeout=30, trust_env=False) as api:
            for path, body in (
                (f"vhosts/{VHOST}", {}),
                (f"vhosts/{CONTROL}", {}),
                (f"permissions/{VHOST}/guest", EVERYTHING),
                (f"permissions/{CONTROL}/guest", EVERYTHING),
                (f"users/{USER}", {"password": self._password, "tags": "monitoring"}),
                (f"permissions/{VHOST}/{USER}", EVERYTHING),
            ):
                api.put(path, json=body).raise_for_status()
        for node in range(len(self.nodes)):
            with self._link(VHOST, node) as link:
                _declare(link.channel(), node, control=False)
            with self._link(CONTROL, node) as link:
                _declare(link.channel(), node, control=True)
        (self.folder / "policies").mkdir()
        (self.folder / "policies" / "nodes.yaml").write_text(POLICIES, encoding="utf-8")
        (self.folder / "key").write_text(secrets.token_hex(32), encoding="utf-8")

    def _link(self, vhost: str, node: int = 0) -> Any:
        return pika.BlockingConnection(pika.URLParameters(f"{self.nodes[node].amqp_base}/{vhost}"))

    def depths(self, vhost: str) -> dict[str, int]:
        """Ready messages in every queue but the router's own books."""
        with httpx.Client(base_url=f"{self.nodes[0].management_url}/api/", timeout=30, trust_env=False) as api:
            answer = api.get(f"queues/{vhost}?columns=name,exclusive").raise_for_status().json()
        names = [queue["name"] for queue in answer if queue["name"] not in OURS_ALONE and not queue.get("exclusive")]
        with self._link(vhost) as link:
            return {name: _depth(link, name) for name in names}

    def stages(self, vhost: str, node: int) -> Stages | None:
        """What the replicas on this node say of the quorum queues; None: the node did not answer.

        While one node is frozen the management API of no node answers (4.0). A query of a node's own replicas does.
        """
        answers, mark, silent = self._eval(STAGES.replace("VHOST", vhost), node).partition("silent,")
        if not mark:
            return None
        dead = {queue: Stage(int(many), int(oldest)) for queue, many, oldest in _STAGE.findall(answers)}
        return Stages(dead, frozenset(_NAME.findall(silent)))

    def lead_anew(self, vhost: str, queue: str) -> str:
        """Another node leads the queue from now on, and begins a dead-letter worker; → what the broker said."""
        return self._eval(LEAD_ANEW.replace("VHOST", vhost).replace("QUEUE", queue))

    def _eval(self, term: str, node: int = 0) -> str:
        """What the node answers, in one line, or why it does not."""
        try:
            return self.nodes[node].rabbitmqctl("eval", term).strip().replace("\n", " ")
        except (BrokerError, OSError, subprocess.TimeoutExpired) as error:
            return f"not done: {str(error)[-200:]!r}"

    def leftovers(self, vhost: str) -> Iterator[tuple[str, bytes]]:
        """What lies anywhere still; it is taken out."""
        for queue, depth in self.depths(vhost).items():
            if depth:
                with self._link(vhost) as link:
                    channel = link.channel()
                    for method, _, body in channel.consume(queue, inactivity_timeout=2, auto_ack=True):
                        if method is None:
                            break
                        yield queue, body

    def told(self) -> tuple[dict[int, str], list[tuple[float, float]]]:
        """What the journal says: number → kind of the last event, and the gaps in seconds since 1970."""
        last: dict[int, str] = {}
        gaps: list[tuple[float, float]] = []
        with self._link(VHOST) as link:
            for event in events(link, idle_s=5):
                _read(event, last, gaps)
        return last, gaps

    def close(self) -> None:
        """Nothing is left but the logs."""
        for router in self.routers:
            with contextlib.suppress(ProcessLookupError):
                router.close()
        for at, node in enumerate(self.nodes):
            (self.folder / f"node-{at}.log").write_text(node.log, encoding="utf-8")
        self.cluster.close()


def _read(event: dict[str, Any], last: dict[int, str], gaps: list[tuple[float, float]]) -> None:
    if event["kind"] == "gap":
        gaps.append((event["from_ms"] / 1000, event["to_ms"] / 1000))
        return
    name, _, digits = str((event.get("props") or {}).get("message_id", "")).partition(":")
    if name in NAMED and digits.isdigit():
        last[int(digits)] = event["kind"]


def _depth(link: Any, name: str) -> int:
    return int(link.channel().queue_declare(name, passive=True).method.message_count)


def _declare(channel: Any, node: int, *, control: bool) -> None:
    """What belongs to this node: its classic queues; quorum queues are made with the first."""
    inbox = "control.inbox" if control else ROUTER_INBOX
    channel.exchange_declare(inbox, "fanout", durable=True)
    channel.exchange_declare(ENDS, "fanout", durable=True)
    if node == 0:
        channel.queue_declare(ENDS, durable=True, arguments=_QUORUM)
        channel.queue_bind(ENDS, inbox if control else ENDS)
    for way in WAYS:
        if (way.node or 0) == node:
            _declare_source(channel, way, inbox, control=control)


def _declare_source(channel: Any, way: Way, inbox: str, *, control: bool) -> None:
    kind = {"x-queue-type": "classic", "x-queue-leader-locator": "client-local"} if way.classic else _QUORUM
    safe = {} if way.classic else _AT_LEAST_ONCE
    dies: dict[str, str | int] = {**kind, **safe, "x-dead-letter-exchange": inbox}
    if way.route == ATTACHED:
        dies = {**kind}
    elif way.route == INBOX:
        dies |= {"x-message-ttl": LIES_MS}
    elif control:
        dies = {**dies, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{way.source}.wait"}
        waits = {**_QUORUM, **_AT_LEAST_ONCE, "x-message-ttl": WAITS_MS}
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": way.source}
        channel.queue_declare(f"{way.source}.wait", durable=True, arguments={**waits, **back})
    channel.queue_declare(way.source, durable=True, arguments=dies)
