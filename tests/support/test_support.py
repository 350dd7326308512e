"""The support itself, on a real broker."""

import pytest

from tests.support.client import Client
from tools.brokers import BrokerError, Node


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
