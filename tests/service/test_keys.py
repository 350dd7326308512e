"""Keys through the outside: what conditions, limits of time, alerts and types of queues do to real letters."""

from typing import Final

import pytest

from tests.journal.stream import events
from tests.support.eventually import eventually
from tests.support.scene import Scene

POLICIES: Final = r"""
version: 1
policies:
  - name: base
    match: "#"
    definition: {max-delivery-attempts: 3}
  - name: never
    queue: never
    definition:
      never-retry:
        - header("x-error-type") == "ValidationError"
        - body("/order/total") > 1000 && content_type == "application/json"
        - 'int(header("x-number")) > 3'
      journal: {events: all, body: none, redact: [/order/card]}
  - name: only
    queue: only
    definition:
      retry-only: ['reason == "rejected" && header("x-try").matches("^(yes|please)$")']
  - name: elapsed
    queue: elapsed
    definition: {max-delivery-attempts: -1, redelivery-delay: 800ms, redelivery-max-elapsed: 4s}
  - name: watched
    queue: watched
    definition: {alert: {depth: 100, oldest: 1h, rate: 0.5}}
  - name: quorum-only
    match: "typed.#"
    apply-to: quorum_queues
    priority: 1
    definition: {max-delivery-attempts: 1}
  - name: classic-only
    match: "typed.#"
    apply-to: classic_queues
    priority: 1
    definition: {max-delivery-attempts: 2}
  - name: passing
    queue: passing
    definition:
      max-delivery-attempts: 1
      dead-letter-queue-type: classic
      auto-delete-dead-letter-queue-after: 2s
"""


def dead(scene: Scene, queue: str) -> str:
    """The cause for which the next letter of a queue is dead."""
    message = scene.amqp.take(f"DLQ.{queue}", within=30)
    return str(message.headers["dlx-router"]).partition('"cause":"')[2].partition('"')[0]


@pytest.mark.usefixtures("newest")
def test_a_condition_that_fails_is_false_counted_told_and_costs_no_letter(scene: Scene) -> None:
    scene.work("never")
    before = scene.router.metric("condition_errors_total")
    secret = '{"order":{"total":"secret-total","card":"4711"}}'
    scene.amqp.publish(secret, key="never", headers={"x-number": "secret-number"}, content_type="application/json")
    scene.amqp.fail("never")
    assert scene.amqp.take("never").body == secret.encode()
    assert scene.router.metric("condition_errors_total") == before + 2
    assert "condition.failed" in scene.router.output
    assert "secret-" not in scene.router.output
    retries = [
        event
        for event in events(scene.vhost.amqp_url)
        if event["failed_queue"] == "never" and event["kind"] == "retried"
    ]
    assert retries[-1]["body_values"] == {"/order/total": '"secret-total"'}
    assert retries[-1]["headers"]["x-number"] == '"secret-number"'


def test_apply_to_means_queues_of_a_type(scene: Scene) -> None:
    scene.work("typed.q", "quorum")
    scene.work("typed.c", "classic")
    for queue, tries in (("typed.q", 1), ("typed.c", 2)):

        def once(queue: str = queue, tries: int = tries) -> bool:
            """The router knows the types of new queues after some seconds."""
            scene.amqp.publish("a", key=queue)
            failed = 0
            while not (scene.amqp.exists(f"DLQ.{queue}") and scene.amqp.depth(f"DLQ.{queue}")):
                if (message := scene.amqp.get(queue)) is not None:
                    message.reject()
                    failed += 1
            scene.amqp.channel.queue_purge(f"DLQ.{queue}")
            return failed == tries

        eventually(once, within=40)
