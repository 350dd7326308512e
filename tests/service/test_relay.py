"""Mode relay: what lives goes on in order and as it came, what is too old or too much dies as in the broker."""

from typing import Final

from tests.support.bulk import pour, take_many
from tests.support.scene import Scene

ATTACHED: Final = ("plain.in",)
POLICIES: Final = """
version: 1
attachments:
  - {queue: plain.in, mode: relay, forward-to: {exchange: "", routing-key: "plain.out"}}
policies:
  - {name: plain, match: "plain.#", definition: {}}
"""


def test_each_message_goes_on_once_and_in_order(scene: Scene) -> None:
    scene.amqp.queue("plain.out")
    pour(scene.amqp, "plain.in", (str(n) for n in range(5000)))
    assert [int(one.body) for one in take_many(scene.amqp, "plain.out", 5000)] == list(range(5000))
