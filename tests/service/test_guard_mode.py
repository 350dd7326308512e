"""Mode guard: others consume the queue, the router takes exactly what has to die."""

import time
from typing import Final

from tests.support.bulk import pour, record, rests, take_many
from tests.support.eventually import eventually
from tests.support.scene import Scene, deaths

ATTACHED: Final = ("short", "heavy", "aged", "unstamped", "calm")
POLICIES: Final = """
version: 1
attachments:
  - {queue: short, mode: guard}
  - {queue: heavy, mode: guard}
  - {queue: aged, mode: guard}
  - {queue: unstamped, mode: guard}
  - {queue: calm, mode: guard}
policies:
  - {name: short, queue: short, definition: {max-length: 10}}
  - {name: heavy, queue: heavy, definition: {max-length-bytes: 1000}}
  - {name: aged, queue: aged, definition: {message-ttl: 2s, trust-timestamp: true}}
  - {name: unstamped, queue: unstamped, definition: {message-ttl: 100ms}}
  - {name: calm, queue: calm, definition: {message-ttl: 1h, trust-timestamp: true, max-length: 1000}}
"""


def test_the_oldest_die_where_a_queue_is_too_long_and_nothing_is_given_back(scene: Scene) -> None:
    pour(scene.amqp, "short", (str(n) for n in range(50)), headers={"CC": ["elsewhere"]})
    eventually(lambda: scene.amqp.exists("DLQ.short") and scene.amqp.depth("DLQ.short") == 40)
    assert scene.amqp.depth("short") == 10
    dead = take_many(scene.amqp, "DLQ.short", 40)
    assert [int(message.body) for message in dead] == list(range(40))
    assert deaths(dead[0]) == [("short", "maxlen", 1)]
    assert dead[0].deaths[0]["routing-keys"] == ["short", "elsewhere"]
    assert (record(dead[0])["failed_queue"], record(dead[0])["reason"]) == ("short", "maxlen")
    left = take_many(scene.amqp, "short", 10)
    assert [int(message.body) for message in left] == list(range(40, 50))
    assert not any(message.redelivered for message in left)


def test_what_is_older_than_its_time_dies_in_its_order_and_not_early(scene: Scene) -> None:
    born = int(time.time())
    pour(scene.amqp, "aged", (str(n) for n in range(20)), timestamp=born)
    pour(scene.amqp, "aged", ["later"], timestamp=born + 3600)
    eventually(lambda: scene.amqp.exists("DLQ.aged") and scene.amqp.depth("DLQ.aged") == 20)
    assert time.time() >= born + 2
    dead = take_many(scene.amqp, "DLQ.aged", 20)
    assert [int(message.body) for message in dead] == list(range(20))
    assert deaths(dead[0]) == [("aged", "expired", 1)]
    rests(scene.router)
    assert scene.amqp.take("aged").body == b"later"


def test_a_consumer_of_a_guarded_queue_gets_each_message_once_and_in_order(scene: Scene) -> None:
    """The head is looked at once; that look must not turn the order round under a busy consumer."""
    born = int(time.time())
    pour(scene.amqp, "calm", (str(n) for n in range(900)), timestamp=born)
    got = take_many(scene.amqp, "calm", 900)
    assert [int(message.body) for message in got] == list(range(900))
