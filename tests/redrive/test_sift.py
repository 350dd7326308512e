"""A filter that means a tenth of a queue: the rest keeps its order, and no look ends a letter, on each broker.

DLX_ROUTER_SIFT_LETTERS=100000 is the full size: `make redrive-sift`.
"""

import os
from itertools import pairwise
from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, pour, take_many

N: Final = int(os.environ.get("DLX_ROUTER_SIFT_LETTERS", "3000"))


# A busy machine is several times slower; on one at rest 100,000 letters take a minute.
@pytest.mark.slow
@pytest.mark.timeout(120 + N // 25)
def test_a_tenth_goes_and_the_rest_keeps_its_order(shop: Shop) -> None:
    queue = shop.failed("sift.a", ["0"])
    shop.amqp.take(queue)
    shop.amqp.queue("sift.mended")
    bodies = [str(number) for number in range(N)]
    pour(shop.amqp, queue, bodies, DEAD)
    to = {"routing_key": "sift.mended"}
    done = shop.ends(shop.start(queue, filter='body("") % 10 == 7', to=to), within=60 + N // 50)
    meant = bodies[7::10]
    assert (done["counts"]["sent"], done["counts"]["left"], done["why"]) == (len(meant), N - len(meant), "")
    sent = take_many(shop.amqp, "sift.mended", len(meant), 60 + N // 200)
    assert [message.body.decode() for message in sent] == meant
    rest = take_many(shop.amqp, queue, N - len(meant), 60 + N // 100)
    numbers = [int(message.body) for message in rest]
    breaks = [pair for pair in pairwise(numbers) if pair[0] > pair[1]]
    assert (breaks[:5], len(set(numbers))) == ([], N - len(meant))
    counted = {message.headers.get("x-delivery-count", 0) for message in rest}
    assert max(counted) <= 2, counted  # before 4.3 each look counts; the queue has no limit
    assert shop.amqp.depth(queue) == 0
