"""What operators do to a router and its broker: start, stop, restart, alarms, wrong settings, replicas, TLS."""

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from signal import SIGTERM
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.cli.test_cli import in_a_process
from tests.conftest import ROUTERS
from tests.support.bulk import INBOX, PARKING, dying_queue, every_body, frozen, law_holds, pour, take_many
from tests.support.certificates import Authority, Pair
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

Start = Callable[..., Router]

POLICY: Final = """
version: 1
policies:
  - name: plain
    match: "work.#"
    definition: {dead-letter-exchange: target, max-delivery-attempts: 2, redelivery-delay: 1s}
"""
KEY: Final = "a key of at least sixteen bytes"

_numbers = count(1)


@pytest.fixture(autouse=True)
def _the_law_of_the_metrics(start_router: Start, request: pytest.FixtureRequest) -> Iterator[None]:
    """After each scene: deliveries = settled + given back + in flight."""
    yield
    for router in request.node.stash[ROUTERS]:
        if router.running:
            eventually(partial(law_holds, router), within=5)


@pytest.fixture(scope="module")
def private_node(broker: brokers.Broker) -> Iterator[brokers.Node]:
    """One node for all scenes here that disturb their broker; each leaves it well."""
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be started twice")
    node = brokers.Node(broker.program)
    yield node
    node.close()


@pytest.fixture
def private(private_node: brokers.Node) -> Iterator[Vhost]:
    """A vhost on a node that may be stopped, killed and filled."""
    vhost = Vhost.make(private_node, f"private-{next(_numbers)}")
    yield vhost
    vhost.close()


def _on(vhost: Vhost) -> dict[str, str]:
    return {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}


def _scene(client: Client) -> None:
    client.bind(client.queue("arrived"), client.exchange("target", "fanout"))
    client.exchange(INBOX, "fanout")
    dying_queue(client, "work.a")


# -- start, stop ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_finishes_what_is_in_flight_and_ends_with_0(amqp: Client, start_router: Start) -> None:
    _scene(amqp)
    router = start_router(POLICY)
    with frozen(router):
        pour(amqp, "work.a", [str(number) for number in range(3000)])
        router.signal(SIGTERM)
    eventually(lambda: not router.running, within=120)  # a second signal would force the end
    assert router.exit_code == 0
    eventually(lambda: amqp.depth("arrived") + amqp.depth(INBOX) >= 3000)  # the broker still returns what had no ack
    arrived = {letter.body for letter in take_many(amqp, "arrived", amqp.depth("arrived"))}
    left = {letter.body for letter in take_many(amqp, INBOX, amqp.depth(INBOX))}
    assert len(arrived) + len(left) == 3000, "a drain leaves no copies"
    assert len(arrived | left) == 3000


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_second_signal_forces_the_end_and_loses_nothing(private: Vhost, start_router: Start) -> None:
    with Client(private.amqp_url) as amqp, _memory_alarm(private) as alarm:
        _scene(amqp)
        router = start_router(POLICY, **_on(private), DRAIN_SECONDS="600", HEARTBEAT="300")
        with frozen(router):
            pour(amqp, "work.a", [str(number) for number in range(100)])
            alarm()
        eventually(lambda: router.metric("in_flight") > 0, within=120)
        router.signal(SIGTERM)
        assert consistently(lambda: router.running)
        router.signal(SIGTERM)
        eventually(lambda: not router.running, within=120)
        assert router.exit_code not in {0, 130}
    with Client(private.amqp_url) as amqp:
        router.start()
        assert every_body(amqp, "arrived", 100) == {str(number) for number in range(100)}


# -- the broker -------------------------------------------------------------------------------------------------------


class _memory_alarm:  # noqa: N801 - reads as a sentence
    """Over as soon as the block ends."""

    def __init__(self, vhost: Vhost) -> None:
        assert isinstance(vhost.broker, brokers.Node)
        self._node = vhost.broker

    def __enter__(self) -> Callable[[], object]:
        return lambda: self._node.rabbitmqctl("set_vm_memory_high_watermark", "0.0")

    def __exit__(self, *_: object) -> None:
        self._node.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1GB")


class _disk_alarm(_memory_alarm):  # noqa: N801 - reads as a sentence
    """Over as soon as the block ends."""

    def __enter__(self) -> Callable[[], object]:
        return lambda: self._node.rabbitmqctl("set_disk_free_limit", "9000GB")

    def __exit__(self, *_: object) -> None:
        self._node.rabbitmqctl("set_disk_free_limit", "64MB")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [_memory_alarm, _disk_alarm], ids=["memory", "disk"])
def test_an_alarm_pauses_the_router_and_costs_nothing(
    private: Vhost, start_router: Start, kind: type[_memory_alarm]
) -> None:
    with Client(private.amqp_url) as amqp:
        _scene(amqp)
        router = start_router(POLICY, **_on(private), HEARTBEAT="5", CONFIRM_TIMEOUT="3s")
        with kind(private) as alarm:
            with frozen(router):
                pour(amqp, "work.a", [str(number) for number in range(1000)])
                alarm()
            eventually(lambda: router.ask("/readyz")[0] == 503)
            eventually(lambda: "block" in router.ask("/readyz")[1], within=40)
            settled = router.metric("settled_total")
            assert consistently(lambda: router.running and router.ask("/readyz")[0] == 503, for_s=5)
            assert router.metric("settled_total") == settled
        router.await_ready()
        assert {letter.body for letter in take_many(amqp, "arrived", 1000)} == {
            str(number).encode() for number in range(1000)
        }
        eventually(lambda: router.metric("in_flight") == 0)
        assert amqp.depth("arrived") == 0, "no copies: nothing was taken for lost while the broker was blocked"
        assert router.metric("publish_refused_total") == 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "resource"), [(_disk_alarm, "disk"), (_memory_alarm, "memory")])
def test_doctor_sees_alarms_and_says_what_ends_them(
    private: Vhost, tmp_path: Path, kind: type[_memory_alarm], resource: str
) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)

    def told() -> dict[str, str]:
        done = in_a_process("doctor", "--json", "--policies", str(tmp_path), **_on(private))
        (check,) = [row for row in json.loads(done.stdout) if row["check"] == "alarms"]
        return {str(key): str(value) for key, value in check.items()}

    with kind(private) as alarm:
        alarm()
        alarms = eventually(lambda: (answer := told())["level"] == "error" and answer, 10)
        assert alarms
        assert resource in alarms["found"]
        assert "@localhost)" in alarms["found"]
        assert "rabbitmq-diagnostics" in alarms["fix"]
    assert eventually(lambda: told()["level"] == "ok", 10)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_session_that_begins_under_an_alarm_lasts_until_it_is_over_or_we_are_told_to_end(
    private: Vhost, start_router: Start, tmp_path: Path
) -> None:
    """What it asks where it does not read is not answered, and that is no lateness of the broker."""
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    with Client(private.amqp_url) as amqp, _memory_alarm(private) as alarm:
        _scene(amqp)
        env = _on(private) | {"PROVENANCE_KEY_FILE": str(tmp_path / "key"), "DRAIN_SECONDS": "2"}
        router = start_router(POLICY, **env)
        router.stop()
        pour(amqp, "dlx-router.release", ["odd"])  # is consumed first, and published at once
        pour(amqp, "work.a", ["an order"])
        alarm()
        router.start(wait=False)
        eventually(lambda: "the broker blocks publishers" in router.ask("/readyz")[1], within=40)
        assert consistently(lambda: "session.ended" not in router.output, for_s=20)
        router.signal(SIGTERM)
        eventually(lambda: not router.running, within=20)
    with Client(private.amqp_url) as amqp:
        router.start()
        assert every_body(amqp, "arrived", 1) == {"an order"}


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_broker_that_restarts_finds_its_router_again_and_nothing_is_lost(
    private: Vhost, start_router: Start, ends: str
) -> None:
    assert isinstance(private.broker, brokers.Node)
    with Client(private.amqp_url) as amqp:
        amqp.bind(amqp.queue("arrived", "quorum"), amqp.exchange("target", "fanout"))
        router = start_router(POLICY, **_on(private))
        amqp.queue("work.a", "quorum", dead_letter_exchange=INBOX)
        # A broker that is killed within half a second of a quorum queue's declaration forgets what it confirmed for it.
        amqp.publish("the rung is old enough", key="work.a")
        amqp.fail("work.a")
        amqp.take("work.a")
        for number in range(50):  # these wait in a rung; nothing rejects what is back from it already
            amqp.publish(f"waits-{number}", key=INBOX, headers=_death("work.a", "rejected"))
        dying_queue(amqp, "work.b")
        eventually(lambda: router.metric("settled_total", action="retry") == 51, within=60)
        with frozen(router):
            for number in range(500):
                amqp.publish(f"inbox-{number}", key=INBOX, headers=_death("work.b"))
    if ends == "kill":  # RabbitMQ 3.10.8 never answers consumers of a quorum queue that was younger than some 5 s then
        assert consistently(lambda: router.running, for_s=7)
    getattr(private.broker, ends)()
    eventually(lambda: router.ask("/readyz")[0] == 503)
    assert router.running
    private.broker.start()
    router.await_ready(within=40)
    with Client(private.amqp_url) as amqp:
        back = take_many(amqp, "work.a", 50, within=30)
        assert {letter.body.decode() for letter in back} == {f"waits-{number}" for number in range(50)}
        eventually(lambda: amqp.depth(INBOX) == 0 and router.metric("in_flight") == 0, within=20)
        arrived = take_many(amqp, "arrived", amqp.depth("arrived"))
        assert {letter.body.decode() for letter in arrived} == {f"inbox-{number}" for number in range(500)}


def _death(queue: str, reason: str = "expired") -> dict[str, object]:
    keys = {"queue": queue, "exchange": "", "routing-keys": [queue], "reason": reason}
    return {"x-death": [{**keys, "count": 1}]}


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_catch_all_policy_that_comes_later_stops_the_router_within_a_minute(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    router = start_router(POLICY)
    vhost.policy("short", ".*", {"max-length": 5})
    eventually(lambda: (answer := router.ask("/readyz"))[0] == 503 and "short" in answer[1], within=70, every=0.5)
    pour(amqp, INBOX, ["waits"], _death("work.a"))
    eventually(lambda: amqp.depth(INBOX) == 1)
    assert consistently(lambda: amqp.depth(INBOX) == 1)
    assert amqp.depth(PARKING) == 0


@pytest.mark.usefixtures("newest")
def test_all_vhosts_are_waited_for_until_the_management_api_tells_them(start_router: Start) -> None:
    port = brokers.free_port()
    router = start_router(POLICY, wait=False, VHOSTS="*", MANAGEMENT_URL=f"http://u:Pr1vate@127.0.0.1:{port}")
    eventually(lambda: f"127.0.0.1:{port}" in router.ask("/readyz")[1])
    assert consistently(lambda: router.ask("/readyz")[0] == 503)
    assert "Pr1vate" not in router.output + router.ask("/readyz")[1]
    assert router.stop(within=5) == 0


# -- what waits --------------------------------------------------------------------------------------------------------


# -- replicas ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("newest")
def test_a_standby_without_a_key_file_is_not_ready_says_so_and_takes_over(amqp: Client, start_router: Start) -> None:
    _scene(amqp)
    first = start_router(POLICY)
    second = start_router(POLICY, wait=False)
    eventually(lambda: "PROVENANCE_KEY_FILE" in second.ask("/readyz")[1])
    assert second.ask("/readyz")[0] == 503
    eventually(lambda: second.output.count("vhost.standby") == 1)
    pour(amqp, "work.a", [str(number) for number in range(50)])
    assert len(take_many(amqp, "arrived", 50)) == 50
    assert second.metric("deliveries_total") == 0
    first.kill()
    second.await_ready()
    pour(amqp, "work.a", ["taken over"])
    assert amqp.take("arrived").body == b"taken over"


@pytest.mark.usefixtures("newest")
def test_replicas_with_a_key_file_share_the_letters(amqp: Client, start_router: Start, tmp_path: Path) -> None:
    _scene(amqp)
    key = tmp_path / "key"
    key.write_text(KEY, encoding="utf-8")
    first, second = (start_router(POLICY, PROVENANCE_KEY_FILE=str(key), PREFETCH="10") for _ in range(2))
    with frozen(first), frozen(second):
        pour(amqp, "work.a", [str(number) for number in range(200)])
    assert len({letter.body for letter in take_many(amqp, "arrived", 200)}) == 200
    assert first.metric("deliveries_total") > 0
    assert second.metric("deliveries_total") > 0
    amqp.queue("work.b", dead_letter_exchange=INBOX)
    pour(amqp, "work.b", ["waits"])
    amqp.fail("work.b")
    assert amqp.take("work.b").deaths[0]["count"] == 1  # whichever replica releases it reads the other's record
    assert KEY not in first.output + second.output


def test_a_waiting_letter_is_known_to_the_router_of_tomorrow(amqp: Client, start_router: Start) -> None:
    router = start_router(POLICY)
    amqp.queue("work.b", dead_letter_exchange=INBOX)
    amqp.publish("waits", key="work.b")
    amqp.fail("work.b")
    eventually(lambda: router.metric("settled_total", action="retry") == 1)
    assert router.stop() == 0
    router.start()
    letter = amqp.take("work.b")
    assert (letter.body, letter.deaths[0]["count"]) == (b"waits", 1)


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "the right authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "another authority")


@pytest.mark.usefixtures("newest")
def test_the_management_api_by_tls_is_verified_by_the_same_authority(
    vhost: Vhost, authority: Authority, stranger: Authority, start_router: Start
) -> None:
    with _behind_tls(authority.issue("localhost"), urlsplit(vhost.management_url).port or 0) as port:
        api = f"https://guest:guest@localhost:{port}"
        known = start_router(POLICY, MANAGEMENT_URL=api, TLS_CA=str(authority.certificate))
        assert "not verified" not in known.ask("/readyz")[1]
        assert known.stop() == 0
        unknown = start_router(POLICY, MANAGEMENT_URL=api, TLS_CA=str(stranger.certificate))
        assert "certificate verify failed" in unknown.ask("/readyz")[1].lower()
        assert unknown.stop() == 0
        by_number = api.replace("localhost:", "127.0.0.1:")
        named = {"MANAGEMENT_URL": by_number, "TLS_SERVER_NAME": "localhost", "TLS_CA": str(authority.certificate)}
        assert "not verified" not in start_router(POLICY, **named).ask("/readyz")[1]


@contextmanager
def _behind_tls(pair: Pair, port: int) -> Iterator[int]:
    """The port of a TLS front of that plain port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_pipe(reader, inner_writer), _pipe(inner_reader, writer))
        finally:
            writer.transport.abort()
            inner_writer.transport.abort()

    with asyncio.Runner() as runner:
        server = runner.run(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
        end = asyncio.Event()
        thread = Thread(target=runner.run, args=(end.wait(),))
        thread.start()
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            runner.get_loop().call_soon_threadsafe(end.set)
            thread.join()
            server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
