"""The support itself, on a real broker."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dlx_router.telemetry.metrics import Metrics
from tests.support import eventually as waiting
from tests.support.client import Client, Unroutable
from tests.support.eventually import consistently, eventually
from tests.support.raw import RawClient
from tests.support.router import Router, RouterEndedError, samples
from tests.support.vhost import Vhost
from tools.brokers import BrokerError, Node


def test_a_rejected_message_dies_with_its_history(amqp: Client, vhost: Vhost) -> None:
    amqp.queue("dead")
    amqp.queue("work", "quorum", dead_letter_exchange="", dead_letter_routing_key="dead")
    amqp.publish("hello", key="work", headers={"tenant": "a"}, message_id="1")
    amqp.fail("work")
    letter = amqp.take("dead")
    assert (letter.body, letter.headers["tenant"], letter.properties.message_id) == (b"hello", "a", "1")
    assert [(death["queue"], death["reason"], death["count"]) for death in letter.deaths] == [("work", "rejected", 1)]
    assert vhost.queues() == ["dead", "work"]


def test_each_test_has_a_vhost_of_its_own(amqp: Client, vhost: Vhost) -> None:
    assert vhost.queues() == []
    assert not amqp.exists("work")


def test_an_unroutable_publish_is_an_error(amqp: Client) -> None:
    with pytest.raises(Unroutable):
        amqp.publish("hello", key="nowhere")


def test_the_raw_client_gives_back_every_header_byte(amqp: Client, vhost: Vhost) -> None:
    table = b"\x01bb\xff\x01dD\x02\x00\x00\x00\x07\x01ff?\x80\x00\x00"  # int8, decimal, float32
    flags_and_type = b"\xa0\x00\x0atext/plain"
    properties = flags_and_type + len(table).to_bytes(4) + table
    with RawClient(vhost.amqp_url) as raw:
        raw.publish(b"hello", properties, key=amqp.queue("work"))
        message = raw.get("work")
        assert message
        assert (message.properties, message.headers, message.body) == (properties, table, b"hello")
        assert raw.get("work") is None


def test_a_policy_takes_effect(amqp: Client, vhost: Vhost) -> None:
    vhost.policy("catch", "^work$", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead", "message-ttl": 1})
    amqp.queue("dead")
    amqp.publish("hello", key=amqp.queue("work"))
    assert eventually(lambda: amqp.depth("dead") == 1)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_node_keeps_its_data_over_a_stop_and_a_kill(own_broker: Node) -> None:
    with Client(own_broker.amqp_url) as client:
        client.publish("kept", key=client.queue("work", "quorum"))
    own_broker.stop()
    own_broker.start()
    own_broker.kill()
    own_broker.start()
    with Client(own_broker.amqp_url) as client:
        assert client.take("work", within=30).body == b"kept"
    with pytest.raises(BrokerError, match=r"no_such_command|not found|No such|not exist"):
        own_broker.rabbitmqctl("no_such_command")


def test_a_router_that_ends_says_what_it_printed(tmp_path: Path) -> None:
    router = Router(amqp_url="nonsense://", policies=tmp_path / "missing", log=tmp_path / "log")
    with pytest.raises(RouterEndedError, match=r"exit [12]"):
        router.start()
    router.close()


def test_samples_are_what_prometheus_reads() -> None:
    metrics = Metrics()
    odd = 'a "queue", \\ back\\n\n{x="y"} 1\u2028'
    metrics.decisions[odd, "retry", "rejected"] += 3
    text = metrics.text().decode()
    read = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert dict(samples(text)) == {(sample.name, frozenset(sample.labels.items())): sample.value for sample in read}
    counts = {dict(labels)["policy"]: value for (_, labels), value in samples(text, "dlx_router_decisions_total")}
    assert counts == {odd: 3}


def test_what_is_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="reset by peer"):
        dict(samples("dlx_router_up 1\nconnection reset by peer"))


def test_eventually_gives_the_first_truthy_answer() -> None:
    answers = iter([0, None, "yes"])
    assert eventually(lambda: next(answers), every=0) == "yes"


def test_eventually_says_what_it_saw_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="last answer: 0"):
        eventually(lambda: 0, within=0.05)


def test_consistently_fails_at_the_first_falsy_answer() -> None:
    answers = iter([1, 1, 0])
    with pytest.raises(AssertionError, match="then 0"):
        consistently(lambda: next(answers), every=0)
