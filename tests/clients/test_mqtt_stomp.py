"""MQTT 5 and STOMP: what they publish comes back as it was, and what of the router they can see."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.sameness import RETURN, Desk, ends, own, ways
from tests.support.bulk import INBOX, QUARANTINE
from tests.support.eventually import eventually

pytestmark = pytest.mark.clients
BODY: Final = bytes(range(256))
LIMITS: Final = (Path(__file__).parents[2] / "docs/limits.md").read_text(encoding="utf-8")


@pytest.fixture
def mqtt(library: Callable[[str], Any], desk: Desk) -> Iterator[Any]:
    """A connected client of MQTT 5 in the vhost."""
    paho = library("paho.mqtt.client")
    versions = library("paho.mqtt.enums")
    client = paho.Client(
        versions.CallbackAPIVersion.VERSION2, client_id="tested", protocol=versions.MQTTProtocolVersion.MQTTv5
    )
    client.username_pw_set(f"{desk.vhost.name}:guest", "guest")
    client.connect("127.0.0.1", desk.vhost.broker.ports["mqtt"])  # type: ignore[attr-defined]  # a node has ports
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def test_mqtt_comes_back_and_a_subscriber_sees_the_headers_of_the_router(
    mqtt: Any, library: Callable[[str], Any], desk: Desk
) -> None:
    """limits.md: they are user properties, the record too."""
    queue, messages, subscribed = ways(desk, "mqtt", exchange="amq.topic"), [], []
    mqtt.on_message = lambda _client, _data, message: messages.append(message)
    mqtt.on_subscribe = lambda *_: subscribed.append(True)
    mqtt.subscribe("dead/mqtt", qos=1)
    eventually(lambda: subscribed)
    properties = library("paho.mqtt.properties").Properties(library("paho.mqtt.packettypes").PacketTypes.PUBLISH)
    properties.UserProperty = [("mine", "größe"), ("x-other", "2")]
    properties.ContentType, properties.CorrelationData = "application/octet-stream", b"c-1"
    properties.ResponseTopic, properties.PayloadFormatIndicator = "answers/here", 0
    mqtt.publish("work/mqtt", BODY, qos=1, properties=properties).wait_for_publish(10)
    seen = [desk.amqp.fail(queue) for _ in range(2)]
    assert [letter.exchange for letter in seen] == ["amq.topic", RETURN]
    assert own(seen[0].headers) == own(seen[1].headers)
    assert {name: value for name, value in vars(seen[0].properties).items() if name != "headers"} == {
        name: value for name, value in vars(seen[1].properties).items() if name != "headers"
    }
    (dead,) = eventually(lambda: list(messages), within=20)
    named = dict(dead.properties.UserProperty)
    assert (dead.payload, named["mine"], named["x-other"]) == (BODY, "größe", "2")
    assert sorted(named.keys() - {"mine", "x-other"}) == [
        "dlx-router", "dlx-router-id", "dlx-router-pub",
        "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
        "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
    ]  # fmt: skip
    assert named["dlx-router-id"] in named["dlx-router"]
    assert f'"failed_queue":"{queue}"' in named["dlx-router"], "limits.md: who may subscribe reads names"
    for name in ("user properties", "`dlx-router`", "`dlx-router-id`", "`dlx-router-pub`", "`x-first-death-*`"):
        assert name in LIMITS
    desk.letters(1, queue=queue, state="dead")


class Stomp:
    """Frames of STOMP 1.2 over a socket: there is not more to it."""

    def __init__(self, port: int, vhost: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._buffer = b""
        self.say("CONNECT", {"accept-version": "1.2", "host": vhost, "login": "guest", "passcode": "guest"})
        assert self.hear()[0] == "CONNECTED"

    def say(self, verb: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = [verb, *(f"{name}:{value}" for name, value in headers.items()), f"content-length:{len(body)}"]
        self._socket.sendall("\n".join(lines).encode() + b"\n\n" + body + b"\0")

    def hear(self) -> tuple[str, dict[str, str], bytes]:
        while b"\n\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.lstrip(b"\n").partition(b"\n\n")
        verb, *lines = head.decode().split("\n")
        headers = dict(line.split(":", 1) for line in lines)
        size = int(headers.get("content-length", 0))
        while len(self._buffer) < size + 1:
            self._more()
        body, self._buffer = self._buffer[:size], self._buffer[size + 1 :]
        return verb, headers, body

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, "the broker closed the connection"
        self._buffer += data

    def close(self) -> None:
        self._socket.close()


def test_stomp_gets_back_what_it_sent(desk: Desk) -> None:
    queue = ways(desk, "stomp")
    stomp = Stomp(desk.vhost.broker.ports["stomp"], desk.vhost.name)  # type: ignore[attr-defined]  # a node has ports
    headers = {
        "content-type": "application/octet-stream", "content-encoding": "none", "persistent": "true", "priority": "3",
        "correlation-id": "c-1", "type": "order", "app-id": "shop", "amqp-message-id": "m-1", "mine": "größe",
    }  # fmt: skip
    stomp.say("SEND", {"destination": f"/exchange/shop/{queue}", **headers}, BODY)
    stomp.say("SUBSCRIBE", {"id": "1", "destination": f"/amq/queue/{queue}", "ack": "client-individual"})
    received = []
    for _ in range(2):
        verb, got, body = stomp.hear()
        assert (verb, body) == ("MESSAGE", BODY)
        stomp.say("NACK", {"id": got["ack"], "requeue": "false"})
        received.append({name: value for name, value in own(got).items() if name not in {"ack", "message-id"}})
    assert (received[0].pop("destination"), received[1].pop("destination")) == (
        f"/exchange/shop/{queue}",
        f"/exchange/{RETURN}/{queue}",
    )
    assert received[0] == received[1]
    assert headers.items() <= received[0].items()
    ends(desk, queue)
    stomp.close()  # not before: what was said last may be lost with the socket


def long_key(desk: Desk, queue: str, body: bytes) -> str:
    """Publish by STOMP with a key that no AMQP 0-9-1 client could use; the queue gets it from amq.topic."""
    key = f"{queue}." + "k" * 300
    desk.amqp.bind(queue, "amq.topic", f"{queue}.#")
    stomp = Stomp(desk.vhost.broker.ports["stomp"], desk.vhost.name)  # type: ignore[attr-defined]  # a node has ports
    stomp.say("SEND", {"destination": f"/exchange/amq.topic/{key}", "persistent": "true", "receipt": "1"}, body)
    assert stomp.hear()[0] == "RECEIPT"
    stomp.close()
    return key


def test_a_routing_key_over_255_bytes_stays_in_the_history(desk: Desk) -> None:
    """The broker's own dead lettering gives the letter a shorter one, so that it can be read."""
    queue = desk.amqp.queue("work.long", dead_letter_exchange=INBOX, dead_letter_routing_key="short", message_ttl=100)
    key = long_key(desk, queue, b"odd")
    dead = desk.amqp.take("DLQ.work.long", within=20)
    assert (dead.body, dead.deaths[0]["queue"], dead.deaths[0]["routing-keys"]) == (b"odd", "work.long", [key])
    desk.letters(1, queue="work.long", state="dead")


def test_a_letter_with_a_routing_key_over_255_bytes_stops_no_other(desk: Desk) -> None:
    """RabbitMQ ends the connection that should be handed it, again and again."""
    if desk.vhost.broker.version.startswith("3."):
        pytest.skip("limits.md: only AMQP 1.0 could move it, and that is a plugin there")
    queue = desk.amqp.queue("work.stuck", dead_letter_exchange=INBOX, message_ttl=100)
    long_key(desk, queue, b"odd")
    desk.amqp.publish("next", key=queue)
    assert desk.amqp.take(f"DLQ.{queue}", within=40).body == b"next"
    eventually(lambda: desk.router.metric("unreadable_total") == 1, within=20)
    assert desk.amqp.depth(QUARANTINE) == 1
