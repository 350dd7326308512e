"""A classic queue or a stream that does nothing for a while: what is published to it is neither kept nor refused."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.vhost import Vhost


@contextmanager
def asleep(vhost: Vhost, queue: str) -> Iterator[None]:
    """The queue's process does nothing while the block lasts: what is published to it is neither kept nor refused."""
    lookup = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost.name}">>, queue, <<"{queue}">>))'
    for verb in ("suspend", "resume"):
        vhost.broker.rabbitmqctl("eval", f"{lookup}, ok = sys:{verb}(amqqueue:get_pid(Q)).")
        if verb == "suspend":
            yield
