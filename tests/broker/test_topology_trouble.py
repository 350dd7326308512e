"""The control plane on a broker with TLS, and on one with an alarm."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiormq.abc import AbstractChannel

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.state import StateQueue
from dlx_router.broker.topology import Topology, TopologyError
from tests.broker.scene import NAMES
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tools import brokers


def place(url: str) -> tuple[Host, Login]:
    parts = urlsplit(url)
    return Host(parts.hostname or "", parts.port or 0), Login(parts.username or "", parts.password or "", "/")


def newest(state: StateQueue) -> int:
    """The delivery tag of the last copy that came back."""
    return state._held.tag if state._held is not None else 0


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Path, Path, Path]:
    authority = Authority(tmp_path, "the tests")
    pair = authority.issue("rabbit.example")
    return authority.certificate, pair.certificate, pair.key


@pytest.fixture
def secured(broker: brokers.Broker, tls: tuple[Path, Path, Path]) -> Iterator[brokers.Node]:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be started twice")
    node = brokers.Node(broker.program, tls=tls)
    yield node
    node.close()


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
async def test_with_tls_the_name_in_the_certificate_counts(secured: brokers.Node, tls: tuple[Path, Path, Path]) -> None:
    host, login = place(secured.amqps_url)
    right = Topology(host, login, Tls(ca=str(tls[0]), server_name="rabbit.example"), NAMES)
    await right.ensure_core()
    assert await right.queue_exists(NAMES.inbox)
    await right.close()
    for wrong in (Tls(ca=str(tls[0])), Tls(ca=str(tls[0]), server_name="other.example"), Tls()):
        other = Topology(host, login, wrong, NAMES)
        with pytest.raises(TopologyError, match=r"(?i)certificate"):
            await other.connect()


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
async def test_an_alarm_of_the_broker_stops_neither_looking_nor_being_active(own_broker: brokers.Node) -> None:
    lost: list[TopologyError] = []
    here = Topology(*place(own_broker.amqp_url), None, NAMES)
    await here.ensure_core()
    async with StateQueue(here, renew_s=0.2, on_lost=lost.append) as state:
        await state.wait_active()
        await asyncio.to_thread(own_broker.rabbitmqctl, "set_vm_memory_high_watermark", "0.000001")
        before = newest(state)
        for _ in range(3):
            await asyncio.sleep(1)  # renewals that nobody reads
            assert await here.queue_exists(NAMES.inbox)
        assert (state.active, lost) == (True, [])
        await asyncio.to_thread(own_broker.rabbitmqctl, "set_vm_memory_high_watermark", "0.9")
        await asyncio.to_thread(eventually, lambda: newest(state) > before + 3, 30)
        assert (state.active, lost) == (True, [])
    await here.close()


async def test_a_peer_that_hangs_up_before_its_first_word_is_a_loss_like_others() -> None:
    """A load balancer without a broker behind it; the client library raises StopAsyncIteration then."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        topology = Topology(Host("127.0.0.1", port), Login("guest", "guest", "/"), None, NAMES)
        for _ in range(20):
            with pytest.raises(TopologyError):
                await topology.connect()
        await topology.close()


@pytest.mark.parametrize(
    ("login", "tls", "said"),
    [
        (Login("guest", "wrong", "/"), None, r"ACCESS_REFUSED.*; look at user and password in AMQP_URL"),
        (Login("guest", "guest", "nowhere"), None, r"vhost 'nowhere'.*NOT_ALLOWED - vhost nowhere not found"),
        (Login("guest", "guest", "/"), Tls(), r"is this a port with TLS\?"),
    ],
)
async def test_what_keeps_us_out_is_told_in_the_brokers_words(
    broker: brokers.Broker, login: Login, tls: Tls | None, said: str
) -> None:
    if not broker.managed:
        pytest.skip("a broker that was given has users of its own")
    host, _ = place(broker.amqp_url)
    with pytest.raises(TopologyError, match=said) as refused:
        await Topology(host, login, tls, NAMES).connect()
    assert " object at 0x" not in str(refused.value)


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("error", [None, OSError("gone")], ids=["forgotten", "covered"])
async def test_a_cancel_ends_what_is_asked_of_the_broker(broker: brokers.Broker, error: OSError | None) -> None:
    """As wait_for in Python 3.11 does with a cancel that comes together with the answer, or with an error."""
    here = Topology(*place(broker.amqp_url), None, NAMES).another("test")
    begun = asyncio.Event()

    async def forgets(_channel: AbstractChannel) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None
        return "the answer"

    asked = asyncio.create_task(here.run(forgets, "asking"))
    await begun.wait()
    asked.cancel()
    await asyncio.wait({asked}, timeout=60)
    assert asked.cancelled()
    await here.close()
