"""Rates of a redrive, counted by the depth of queues; for a quiet machine. -m measure"""

import time
from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, INBOX, pour
from tests.support.eventually import eventually

pytestmark = [pytest.mark.measure, pytest.mark.timeout(600)]
ALL: Final = 50_000


def _dead(shop: Shop, queue: str, number: int) -> tuple[str, float]:
    """So many letters in a dead-letter queue, and how many a second the router brought there."""
    shop.amqp.queue(queue, dead_letter_exchange=INBOX)
    pour(shop.amqp, queue, ["x" * 1024] * number, DEAD)
    began = time.monotonic()
    channel = shop.amqp.connection.channel()
    channel.basic_qos(prefetch_count=1000)
    for done, (method, _, _) in enumerate(channel.consume(queue), 1):
        if done % 500 == 0 or done == number:
            channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
        if done == number:
            break
    channel.close()
    name = f"DLQ.{queue}"
    eventually(lambda: shop.amqp.exists(name) and shop.amqp.depth(name) == number, 300)
    return name, number / (time.monotonic() - began)


@pytest.mark.parametrize("rate", [10, 200, 2000])
def test_a_rate_is_kept_within_five_percent_over_a_minute(shop: Shop, rate: int) -> None:
    queue, _ = _dead(shop, f"rate.{rate}", rate * 75)
    name = shop.start(queue, rate=rate)
    eventually(lambda: shop.amqp.depth(f"rate.{rate}") >= rate, 30)
    before, began = shop.amqp.depth(f"rate.{rate}"), time.monotonic()
    time.sleep(60)  # a rate is measured
    measured = (shop.amqp.depth(f"rate.{rate}") - before) / (time.monotonic() - began)
    shop.call("POST", f"/{name}/cancel")
    print(f"\nrate {rate}: {measured:.1f}/s")  # noqa: T201 - the measurement
    assert measured == pytest.approx(rate, rel=0.05)


def test_without_a_limit_it_is_nearly_as_fast_as_routing(shop: Shop) -> None:
    queue, routing = _dead(shop, "fast", ALL)
    began = time.monotonic()
    name = shop.start(queue, rate=0)
    eventually(lambda: shop.amqp.depth("fast") == ALL, 300)
    measured = ALL / (time.monotonic() - began)
    shop.ends(name)
    print(f"\nredrive {measured:.0f}/s, routing {routing:.0f}/s")  # noqa: T201 - the measurement
    assert measured >= 0.8 * routing
