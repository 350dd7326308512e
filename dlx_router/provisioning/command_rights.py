"""The rights that commands other than a moving router need: from the very definitions that they declare.

Guarantees: with them `run --observe`, plan, apply and destroy do all that they do; with any one less they would not.
plan, apply and destroy ask the management API, for which RabbitMQ wants a tag besides. Source:
rabbitmq.com/docs/access-control, rabbitmq.com/docs/management#permissions.
"""

from collections.abc import Iterable, Iterator, Sequence

from dlx_router.broker.definitions import Binding, Definition, Exchange, Queue, core, observe
from dlx_router.broker.stream import journal_stream
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.rights.permissions import DEFAULT_EXCHANGE, LOOKS, Grant, Need, Right, Setup, escaped, name_flush
from dlx_router.config.rights.purpose import Purpose
from dlx_router.core.names import RUNGS, Names
from dlx_router.provisioning import delayed_exchanges
from dlx_router.provisioning.removal import known_names


def needs_of(purpose: Purpose, setup: Setup, vhost: str, delayed: Sequence[Delayed] = ()) -> Grant:
    """The rights in one vhost, whatever its policies say. Not for RUN, whose rights depend on them.

    `delayed`: the entries of any vhost. Exchanges of entries that were taken out are not known here.
    """
    late = delayed_exchanges.here(delayed, vhost)
    names = setup.names
    made = (*core(names), *([journal_stream(names)] if setup.journal else []))
    match purpose:
        case Purpose.OBSERVE:
            needs = [*_observing(setup), *_there((*made, *observe(names)), declare=setup.declare)]
        case Purpose.APPLY:
            needs = [*_there((*made, *delayed_exchanges.definitions_of(late, names)), declare=True)]
        case Purpose.DESTROY:
            needs = [*_removed(names), *_undelayed(names, late)]
        case _:
            needs = []
    unique: dict[tuple[Right, str], Need] = {}
    for need in needs:
        unique.setdefault((need.right, need.names), need)
    return Grant(vhost, tuple(unique.values()))


def _observing(setup: Setup) -> Iterator[Need]:
    yield Need(Right.READ, escaped(setup.names.observe), "consumes copies of dead letters")
    if setup.declare:
        yield name_flush(setup.names)
    if setup.journal:
        yield Need(Right.WRITE, DEFAULT_EXCHANGE, "publishes to the journal")


def _there(definitions: Iterable[Definition], *, declare: bool) -> Iterator[Need]:
    """What it takes to have them: to declare and bind, or to look only."""
    for definition in definitions:
        if declare:
            yield from _declared(definition)
        elif not isinstance(definition, Binding):
            yield Need(Right.WRITE, escaped(definition.name), LOOKS, looks=True)


def _declared(definition: Definition) -> Iterator[Need]:
    match definition:
        case Exchange(name=name):
            yield Need(Right.CONFIGURE, escaped(name), "declares what the router owns")
        case Queue(name=name, arguments=arguments):
            yield Need(Right.CONFIGURE, escaped(name), "declares what the router owns")
            if "x-dead-letter-exchange" in arguments:
                target = str(arguments["x-dead-letter-exchange"])
                yield Need(Right.READ, escaped(name), "what is refused there falls into another queue")
                yield Need(Right.WRITE, escaped(target) if target else DEFAULT_EXCHANGE, "and that is the way")
        case Binding(queue=queue, exchange=exchange):
            yield Need(Right.WRITE, escaped(queue), "binds the queue")
            yield Need(Right.READ, escaped(exchange), "binds a queue to the exchange")


def _removed(names: Names) -> Iterator[Need]:
    """Rungs and locks by their form; all else by name, so that what is not ours cannot be deleted by mistake."""
    rungs = frozenset(map(names.delay, RUNGS))
    for name in sorted(known_names(names) - rungs):
        yield Need(Right.CONFIGURE, escaped(name), "looks whether it is empty, and deletes it")
    yield Need(Right.CONFIGURE, rf"{escaped(names.delay(0))[:-1]}[0-9]+", "likewise, the rungs")
    yield Need(Right.CONFIGURE, f"{escaped(names.guard('')[:-16])}[0-9a-f]+", "deletes locks of guards")


def _undelayed(names: Names, late: Iterable[Delayed]) -> Iterator[Need]:
    """Queues by their form: an entry may have been taken out of the policies, and its queue stands."""
    queues = f"{escaped(names.delayed(''))}.*"
    yield Need(Right.CONFIGURE, queues, "looks whether they are empty, and deletes the queues of delayed exchanges")
    yield Need(Right.WRITE, queues, "unbinds them first")
    for entry in late:
        yield Need(Right.READ, escaped(entry.exchange), f"unbinds the queue of delayed exchange {entry.exchange}")
        yield Need(Right.CONFIGURE, escaped(entry.exchange), f"deletes delayed exchange {entry.exchange}, where ours")
