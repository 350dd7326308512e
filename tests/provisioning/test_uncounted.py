"""A count that the broker does not tell is never 0: not of letters, and not of deaths that are not confirmed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.broker.management import Management, Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import ownership
from dlx_router.provisioning.apply_plan import none_pending
from dlx_router.provisioning.dead_letter_destinations import letters
from dlx_router.provisioning.plan import UNCOUNTED, plan
from dlx_router.provisioning.removal import Counts, Remains, remaining
from tests.provisioning.test_provision import Commands
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.serving import serving
from tests.support.vhost import Vhost
from tools import brokers

NAMES: Final = Names("p")
QUORUM: Final = {"name": "q", "type": "quorum", "durable": True}
TOLD: Final = {**QUORUM, "state": "running", "messages": 3, "messages_dlx": 1, "consumers": 2}
ROWS: Final = [
    (TOLD, (3, 1, 2)),
    ({**TOLD, "messages": 0, "messages_dlx": 0, "consumers": 0}, (0, 0, 0)),
    ({**TOLD, "state": "flow"}, (3, 1, 2)),
    (QUORUM, (None, None, None)),  # disable_metrics_collector
    ({**QUORUM, "state": "running"}, (None, None, None)),
    ({**QUORUM, "state": "live"}, (None, None, None)),  # the same on RabbitMQ 3.10
    ({**QUORUM, "state": "running", "messages": 3}, (3, None, None)),  # enable_queue_totals
    ({**TOLD, "messages": "", "messages_dlx": None}, (None, None, 2)),
    ({**TOLD, "state": "minority", "messages": 0, "messages_dlx": 0}, (None, None, None)),
    ({**TOLD, "state": "down"}, (None, None, None)),
    ({"name": "q", "type": "classic", "state": "running", "messages": 3, "consumers": 0}, (3, 0, 0)),
    ({"name": "q", "type": "classic"}, (None, 0, None)),  # it hands nothing over at least once
]


class Broker(ThreadingHTTPServer):
    """The management API of one vhost of which only the queues matter."""

    daemon_threads = True

    def __init__(self) -> None:
        queues = self.queues = []  # type: list[dict[str, Any]]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exchange = {"name": "", "type": "direct", "durable": True, "auto_delete": False, "arguments": {}}
                documents = {
                    "overview": {"rabbitmq_version": "4.3.0"},
                    "queues": {"page_count": 1, "items": queues},
                    "exchanges": [exchange],
                }
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(documents.get(self.path.split("/")[2].partition("?")[0], [])).encode())

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture(scope="module")
def broker_api() -> Iterator[Broker]:
    with serving(Broker()) as server:
        yield server


@pytest.mark.parametrize(("row", "counts"), ROWS)
async def test_what_the_api_does_not_tell_of_a_running_queue_is_not_known(
    broker_api: Broker, row: dict[str, Any], counts: tuple[int | None, ...]
) -> None:
    broker_api.queues[:] = [row]
    api = Management(f"http://u:x@127.0.0.1:{broker_api.server_port}")
    (queue,) = (await api.snapshot("/")).queues
    await api.close()
    assert (queue.messages, queue.pending, queue.consumers) == counts
    assert queue.is_down is (row.get("state") in {"down", "minority"})


def test_a_policy_has_a_depth_only_where_each_of_its_queues_is_counted() -> None:
    queues = (Standing("a", "quorum", messages=1), Standing("b", "quorum", messages=2), Standing("c", "quorum"))
    resting = {"ab": frozenset("ab"), "bc": frozenset("bc"), "none": frozenset[str](), "gone": frozenset({"a", "z"})}
    assert letters(resting, Snapshot("/", (4, 3), queues)) == {"ab": 3, "bc": 2, "none": 0}
    silent = (*queues[:2], replace(queues[2], messages=None))
    assert letters(resting, Snapshot("/", (4, 3), silent)) == {"ab": 3, "none": 0}


AT_LEAST_ONCE: Final = {"dead-letter-exchange": "x", "dead-letter-strategy": "at-least-once"}


@pytest.mark.parametrize(
    ("definition", "pending", "codes"),
    [
        (AT_LEAST_ONCE, None, [UNCOUNTED]),
        (AT_LEAST_ONCE, 1, ["pending"]),
        (AT_LEAST_ONCE, 0, []),
        ({"dead-letter-exchange": "x"}, None, []),
    ],
)
def test_apply_takes_no_strategy_away_while_the_deaths_under_it_are_not_counted(
    definition: dict[str, str], pending: int | None, codes: list[str]
) -> None:
    rule = Rule("dlx-router.11111111", "^q$", definition, 5)
    snapshot = Snapshot("/", (4, 3), (Standing("q", "quorum", pending=pending),), policies=(rule,))
    planned = plan(PolicySet(()), snapshot, NAMES, frozenset({rule.name}))
    assert [note.code for note in planned.conflicts] == codes
    assert (planned.is_refused, planned.may_pass) == (bool(codes), codes == [UNCOUNTED])
    assert all("not known" in note.text and "--uncounted" in note.text for note in planned.notes if pending is None)
    looked = plan(PolicySet(()), none_pending(snapshot), NAMES, frozenset({rule.name}))
    assert looked.is_refused is (pending == 1), "a death that is counted stays in the way"


class Standstill:
    """The API of a vhost that stands as it is. Policies that are called as ours are in the ledger."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def parameter(self, _name: str) -> dict[str, Any]:
        return ownership.ledger_value(rule.name for rule in self._snapshot.policies if NAMES.is_own(rule.name))

    async def snapshot(self, _vhost: str) -> Snapshot:
        return self._snapshot


async def remains_of(snapshot: Snapshot, now: Counts, *, uncounted: bool = False) -> Remains:
    async def count(_queues: Sequence[str]) -> Counts:
        return now

    api: Any = Standstill(snapshot)
    return await remaining(api, PolicySet(()), NAMES, "/", count, with_journal=False, uncounted=uncounted)


INBOX: Final = Standing(NAMES.inbox, "quorum")
JUDGED: Final = [  # by the API, by AMQP → what is said, whether that may pass, whether --uncounted is enough
    (0, 0, "", False, True),
    (0, 2, "p.inbox holds 2 letters", False, False),
    (1, 0, "p.inbox holds 1 letter", True, False),
    (None, 0, "p.inbox: what lies in it is not known", True, True),
    (None, None, "p.inbox: what lies in it is not known", True, False),
    (4, None, "p.inbox holds 4 letters", False, False),
    (None, 1, "p.inbox holds 1 letter", False, False),
    (0, None, "p.inbox: what lies in it is not known", True, False),  # it could not be looked at
]


@pytest.mark.parametrize(("api", "amqp", "words", "passes", "enough"), JUDGED)
async def test_destroy_believes_that_a_queue_is_empty_where_the_api_and_amqp_say_so(
    api: int | None,
    amqp: int | None,
    words: str,
    passes: bool,  # noqa: FBT001 - a table
    enough: bool,  # noqa: FBT001 - a table
) -> None:
    """AMQP says 0 of a queue that has no leader, and the API that it is not running."""
    snapshot = Snapshot("/", (4, 3), (replace(INBOX, messages=api),))
    now = {} if amqp is None else {INBOX.name: (amqp, 0)}
    looked = await remains_of(snapshot, now)
    assert len(looked.blockers) == bool(words)
    assert words in "".join(looked.blockers)
    assert looked.may_pass is passes
    assert (not (await remains_of(snapshot, now, uncounted=True)).blockers) is enough


@pytest.mark.parametrize(
    ("pending", "words", "enough"), [(0, "", True), (None, "is not known", True), (2, "2 at-least-once deaths", False)]
)
async def test_destroy_waits_for_deaths_that_nobody_counts(
    pending: int | None,
    words: str,
    enough: bool,  # noqa: FBT001 - a table
) -> None:
    rules = (Rule("p.11111111", "^q$", AT_LEAST_ONCE, 5), Rule("theirs", "^r$", AT_LEAST_ONCE, 5))
    queues = (Standing("q", "quorum", pending=pending), Standing("r", "quorum", pending=pending))
    snapshot = Snapshot("/", (4, 3), queues, policies=rules)
    looked = await remains_of(snapshot, {})
    assert [words in line and line.startswith("queue q:") for line in looked.blockers] == [True] * bool(words)
    assert looked.may_pass is bool(words)
    assert (not (await remains_of(snapshot, {}, uncounted=True)).blockers) is enough


async def test_a_death_is_on_its_way_where_only_the_broker_knows_whose_policy_is_in_force() -> None:
    rules = (Rule("p.11111111", "^[[:alpha:]]+$", AT_LEAST_ONCE, 5),)
    snapshot = Snapshot("/", (4, 3), (Standing("q", "quorum", pending=5),), policies=rules)
    assert [line.split(" at-")[0] for line in (await remains_of(snapshot, {})).blockers] == ["queue q: 5"]


async def test_nobody_has_looked_into_a_queue_that_is_down() -> None:
    inbox = replace(INBOX, messages=None, is_down=True)
    sick = Standing("q", "quorum", pending=None, is_down=True)
    rule = Rule("p.11111111", "^q$", AT_LEAST_ONCE, 5)
    snapshot = Snapshot("/", (4, 3), (inbox, sick), policies=(rule,))
    looked = await remains_of(snapshot, {INBOX.name: (0, 0)}, uncounted=True)
    assert len(looked.blockers) == 2
    assert none_pending(snapshot) == snapshot


async def test_a_journal_of_which_nobody_knows_the_length_is_kept() -> None:
    stream = Standing(NAMES.journal, "stream", messages=None)
    looked = await remains_of(Snapshot("/", (4, 3), (stream,)), {NAMES.journal: (0, 0)})
    assert (looked.queues, len(looked.kept)) == ((), 1)


LEADING: Final = [
    ({"dead-letter-exchange": NAMES.inbox}, True),
    ({"alternate-exchange": NAMES.declared}, True),
    ({"dead-letter-exchange": "x"}, False),
    ({"max-length": 1}, False),
]


@pytest.mark.parametrize(("definition", "leads"), LEADING)
async def test_destroy_is_kept_by_a_policy_of_others_that_leads_to_what_would_go(
    definition: dict[str, Any],
    leads: bool,  # noqa: FBT001 - a table
) -> None:
    """It told arguments of queues only, and the broker dropped what died under such a policy."""
    there = {"": "direct", NAMES.inbox: "fanout", NAMES.declared: "fanout"}
    snapshot = Snapshot("/", (4, 3), exchanges=there, policies=(Rule("by-hand", "^q", definition),))
    looked = await remains_of(snapshot, {})
    assert [line.startswith("policy by-hand leads to p.") for line in looked.blockers] == [True] * leads
    assert not looked.may_pass
    assert (await remains_of(replace(snapshot, exchanges={"": "direct"}), {})).blockers == (), "it leads nowhere then"


ORDERS: Final = "version: 1\npolicies: [{name: a, match: 'orders.#'}]\n"
PARKING: Final = "dlx-router.parking"


@pytest.fixture
def commands(own_broker: brokers.Node, tmp_path: Path) -> Iterator[Commands]:
    """Policies that were applied, on a broker of its own."""
    own_broker.start()
    vhost = Vhost.make(own_broker, "uncounted")
    runner = Commands(vhost, tmp_path)
    runner.write(ORDERS)
    runner.declare("orders.new", queue_type="quorum")
    runner.apply()
    yield runner
    vhost.api.close()


def servers(broker: brokers.Node, queue: str, verb: str) -> None:
    """Say it to the queue's members, which are one: without it the queue has no leader."""
    name = f'rabbit_misc:r(<<"uncounted">>, queue, <<"{queue}">>)'
    member = f"amqqueue:get_pid(element(2, rabbit_amqqueue:lookup({name})))"
    broker.rabbitmqctl("eval", f"ok = ra:{verb}(quorum_queues, {member}).")


@pytest.mark.slow
def test_destroy_deletes_no_queue_that_has_no_leader_and_so_looks_empty(
    commands: Commands, own_broker: brokers.Node
) -> None:
    """Its letters went as soon as it had one again."""
    with Client(commands.vhost.amqp_url) as amqp:
        amqp.publish(b"kept", key=PARKING)
    place = f"queues/{commands.vhost.quoted}/{PARKING}"
    eventually(lambda: commands.vhost.get(place).get("messages") == 1, 20)
    servers(own_broker, PARKING, "stop_server")
    refused = commands.run("destroy")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert f"queue {PARKING} holds 1 letter" in refused.stdout, "the management API said so, and AMQP 0"
    assert commands.policies(), "nothing was removed"
    servers(own_broker, PARKING, "restart_server")
    with Client(commands.vhost.amqp_url) as amqp:
        assert amqp.take(PARKING).body == b"kept"
