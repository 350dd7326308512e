"""The reader on real brokers of every version: what is there is found, what is asked for is read, whole."""

from collections.abc import Callable

import pytest

from dlx_router.spark.amqp import Connection, StreamError, StreamMissing
from dlx_router.wire.address import parse
from tests.spark.conftest import Stream
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost


def opened(vhost: Vhost, timeout_s: float = 10) -> Connection:
    return Connection(parse(vhost.amqp_url), timeout_s=timeout_s)


@pytest.mark.usefixtures("newest")
def test_first_and_newest_are_found_at_once(stream: Stream, vhost: Vhost) -> None:
    with opened(vhost) as link:
        assert (link.probe(stream.name).begin, link.probe(stream.name).end) == (0, 0)
        for number in range(30):
            stream.put(b"%d\n" % number)
            newest = link.probe(stream.name).newest
            assert newest is not None
            assert newest.body == b"%d\n" % number


def test_a_range_is_read_whole_whatever_lies_between_its_offsets(stream: Stream, vhost: Vhost) -> None:
    for number in range(200):
        stream.put(b"%d" % number)
    with opened(vhost) as link:
        end = link.probe(stream.name).end
    for start, stop in ((0, end), (0, 1), (end - 1, end), (37, 101)):
        with opened(vhost) as link:
            read = [message for batch in link.read(stream.name, start, stop, prefetch=20) for message in batch]
        with opened(vhost) as link:
            whole = [message for batch in link.read(stream.name, 0, end) for message in batch]
        assert read == [message for message in whole if start <= message.offset < stop]
        assert [message.body for message in whole] == [b"%d" % number for number in range(200)]


def test_what_cannot_be_read_says_why(amqp: Client, vhost: Vhost) -> None:
    amqp.queue("letters")
    amqp.publish("keep me", key="letters")
    with opened(vhost) as link, pytest.raises(StreamMissing, match="no queue 'absent'"):
        link.probe("absent")
    with opened(vhost) as link, pytest.raises(StreamError, match=r"not a stream|invalid arg 'x-stream-offset'"):
        link.probe("letters")
    assert eventually(lambda: amqp.depth("letters")) == 1
    with pytest.raises(StreamError, match=r"ACCESS_REFUSED|refused") as error:
        Connection(parse(vhost.amqp_url.replace("guest:guest@", "guest:hunter2@")), timeout_s=10)
    assert "hunter2" not in str(error.value)


def test_less_than_was_asked_for_is_an_error(stream: Stream, vhost: Vhost) -> None:
    stream.put(b"one")
    with opened(vhost, timeout_s=1) as link, pytest.raises(StreamError, match="nothing came for 1 s"):
        list(link.read(stream.name, 0, 5))


def test_a_stream_that_goes_while_it_is_read_is_an_error(make_stream: Callable[..., Stream], vhost: Vhost) -> None:
    stream = make_stream("short")
    stream.put(b"one")
    with opened(vhost) as link:
        reading = link.read(stream.name, 0, 5)
        assert [message.body for message in next(reading)] == [b"one"]
        stream.client.channel.queue_delete(stream.name)
        with pytest.raises(StreamError):
            list(reading)
