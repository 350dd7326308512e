"""What a redrive begins anew: the attempts of a letter, and the time of `redelivery-max-elapsed`."""

import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import INBOX, record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

ELAPSED_S: Final = 4
POLICIES: Final = f"""
version: 1
policies:
  - name: all
    match: "#"
    definition: {{max-delivery-attempts: 2, redelivery-max-elapsed: {ELAPSED_S}s}}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_letter_that_is_sent_back_has_its_whole_time_again(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router]
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICIES))
    amqp.queue("late", dead_letter_exchange=INBOX)
    amqp.publish("hello", key="late")
    began = time.monotonic()
    amqp.fail("late")
    amqp.fail("late")
    eventually(lambda: amqp.exists("DLQ.late") and amqp.depth("DLQ.late") == 1)
    eventually(lambda: time.monotonic() - began > ELAPSED_S + 1, 10)
    shop.ends(shop.start("DLQ.late"))
    amqp.fail("late")
    again = amqp.fail("late")
    assert (record(again)["attempts"], record(again)["redrives"]) == (1, 1), "its second delivery since"
    dead = amqp.take("DLQ.late")
    assert record(dead)["cause"] == "attempts_spent"
