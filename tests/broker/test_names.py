"""Names at a real broker: what it reads of them is what we say that it reads, and it is asked about no other."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pamqp import commands

from dlx_router.broker.address import Host, Login
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Forbidden, NotFound, QueueMissing, QueueOwn, Topology, TopologyError
from dlx_router.core.names import as_read
from dlx_router.wire.frames import lenient
from tests.broker.scene import NAMES, bindings, topology, where
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools.brokers import Node

SPELT = ["wo\nrk", "\rwork", "work\r\n", "work\0", "work ", "work\t", "work\x0b", "work\x85", "work\u2028", "Work"]
_Declare = lenient(commands.Queue.Declare)


@pytest.fixture
async def here(vhost: Vhost) -> AsyncIterator[Topology]:
    fresh = topology(vhost)
    yield fresh
    await fresh.close()


async def _declared(here: Topology, name: str) -> str:
    """What the broker answers as the name of a queue that is declared by this one."""

    async def work(channel: Any) -> str:
        answer = await channel.rpc(_Declare(queue=name, durable=True))
        assert isinstance(answer, commands.Queue.DeclareOk)
        return str(answer.queue)

    control = here.another("test")
    try:
        return await control.run(work, "declaring")
    finally:
        await control.close()


@pytest.mark.parametrize("name", SPELT)
async def test_the_broker_reads_a_name_as_we_say(here: Topology, name: str) -> None:
    assert await _declared(here, name) == as_read(name)


@pytest.mark.parametrize("name", SPELT[:3])
async def test_nothing_is_asked_or_bound_by_a_name_that_the_broker_reads_as_another(
    here: Topology, vhost: Vhost, amqp: Client, name: str
) -> None:
    await here.ensure_core()
    amqp.queue("work")
    amqp.exchange("work")
    assert not await here.queue_exists(name)
    assert not await here.exchange_exists(name)
    assert await here.depths([name]) == {}
    with pytest.raises(QueueMissing, match=r"the broker reads .* as 'work'"):
        await here.ensure_return_binding(name)
    with pytest.raises(NotFound, match=r"the broker reads .* as 'work'"):
        await here.ensure_dead_letter_queue(name, "quorum", None)
    assert bindings(vhost, "work") == set()


@pytest.mark.parametrize("name", ["語" * 80, "ü" * 110, "DLQ." + "語" * 83])
@pytest.mark.parametrize("management", [True, False])
async def test_the_absence_of_a_name_that_no_refusal_can_carry_ends_no_connection(
    vhost: Vhost,
    amqp: Client,
    name: str,
    management: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """A passive declaration of it makes RabbitMQ end the connection: its reason is over 255 bytes."""
    api = Management(vhost.management_url) if management else None
    here = Topology(*where(vhost), None, NAMES, management=api)
    try:
        await here.ensure_core()
        control = await here.connect()
        amqp.queue("work")
        assert (await here.queue_counts([name, "work"])).missing == ({name} if management else set())
        assert "work" in await here.depths([name, "work"])
        if management:
            assert not await here.queue_exists(name)
            with pytest.raises(QueueMissing):
                await here.ensure_return_binding(name)
        for _ in range(2):
            await here.ensure_dead_letter_queue(name, "quorum", None)
        assert name in vhost.queues()
        assert await here.queue_exists(name)
        assert await here.ensure_return_binding(name)
        assert await here.connect() is control
    finally:
        await here.close()
        if api is not None:
            await api.close()


@pytest.mark.parametrize("name", ["dlx-router.state", "dlx-router.\nstate", "\rdlx-router.parking", "dlx-router.none"])
async def test_nothing_is_ever_returned_to_a_queue_of_the_router(here: Topology, vhost: Vhost, name: str) -> None:
    await here.ensure_core()
    with pytest.raises(QueueOwn, match="the router's own") as raised:
        await here.ensure_return_binding(name)
    assert isinstance(raised.value, Forbidden)
    for queue in (NAMES.state, NAMES.parking):
        assert not [binding for binding in bindings(vhost, queue) if binding[0] == NAMES.return_]


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff", "%2E%2E", "a/b", "?x#y", "wo\nrk"])
async def test_the_management_api_is_asked_about_no_other_thing_than_the_queue_of_that_name(
    vhost: Vhost, amqp: Client, name: str
) -> None:
    """A path ends where a name is empty, and leads up where it is a dot or two; whoever declares a death may say so."""
    amqp.queue("work")
    management = Management(vhost.management_url)
    try:
        for ask in (management.facts, management.queue_facts):
            with contextlib.suppress(ManagementError):  # nobody knows
                assert await ask(vhost.name, name) is None
    finally:
        await management.close()


@pytest.mark.parametrize("name", ["{}/../other", "../{}/..", "{}/./x", "{}//x/", "{}%2fx", "{}%41 ?x#y;é\\", "/{}/.."])
async def test_what_the_router_owns_is_made_in_the_vhost_of_the_very_name_that_letters_are_taken_from(
    vhost: Vhost, name: str
) -> None:
    """`a/../other` was read as `other`: queues, key and leadership were those of another vhost than the letters."""
    odd = Vhost.make(vhost.broker, name.format(vhost.name))
    here = topology(odd)
    try:
        await here.ensure_core()
        assert NAMES.inbox in odd.queues()
        link = await here.link("test")
        await link.close()
    finally:
        await here.close()
        odd.close()


async def test_a_vhost_whose_name_the_library_reads_as_another_is_not_served(vhost: Vhost) -> None:
    odd, other = (Vhost.make(vhost.broker, f"{vhost.name}{between}x") for between in ("%2F", "/"))
    here = topology(odd)
    try:
        with pytest.raises(TopologyError, match=rf"{odd.name}.* cannot be served: .* open vhost '{other.name}'"):
            await here.ensure_core()
        assert other.queues() == []
    finally:
        await here.close()
        odd.close()
        other.close()


async def test_a_vhost_that_is_called_like_a_step_upwards_is_that_vhost(own_broker: Node) -> None:
    """It was read as `/`. The management API reaches no vhost of this name."""
    own_broker.rabbitmqctl("add_vhost", "..")
    own_broker.rabbitmqctl("set_permissions", "-p", "..", "guest", ".*", ".*", ".*")
    here = Topology(Host("127.0.0.1", own_broker.ports["amqp"]), Login("guest", "guest", ".."), None, NAMES)
    try:
        await here.ensure_core()
    finally:
        await here.close()
    assert NAMES.inbox in own_broker.rabbitmqctl("list_queues", "-p", "..", "name").split()
    assert NAMES.inbox not in own_broker.rabbitmqctl("list_queues", "-p", "/", "name").split()
