"""What operators may not address: queues and exchanges of the router itself, however they are spelt."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.names import Names
from dlx_router.redrive.task import Destination, forbidden
from tests.core.core_samples import law
from tests.redrive.conftest import Shop
from tests.redrive.test_edit import edit, ids_in
from tests.support.eventually import consistently, eventually

OWN: Final = ("journal", "state", "release", "declared", "inbox", "inbox.fifo", "return", "parking", "quarantine",
              "retired", "delay.100", "delayed.x", "guard.0")  # fmt: skip
EXCHANGES: Final = ("inbox", "declared", "release", "return")
SPELT: Final = ("dlx-router.{}", "dlx-router.\n{}", "\rdlx-router.{}", "dlx-\nrouter.{}\r\n")


def destinations() -> list[dict[str, str]]:
    queues = [{"exchange": "", "routing_key": spelt.format(name)} for name in OWN for spelt in SPELT]
    return queues + [{"exchange": spelt.format(name), "routing_key": "k"} for name in EXCHANGES for spelt in SPELT]


@law
@given(st.sampled_from(destinations()), st.text(max_size=5))
def test_no_destination_is_the_routers_own(to: dict[str, str], key: str) -> None:
    assert "the router's own" in forbidden(Destination(**to), Names())
    assert not forbidden(Destination("shop", to["routing_key"]), Names()), "others bind what they like"
    assert not forbidden(Destination("", f"work{key}"), Names())
    assert not forbidden(Destination(**to), Names("other"))


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_redrive_or_an_edit_to_what_is_the_routers_own_is_refused_and_the_letter_stays(shop: Shop) -> None:
    queue = shop.failed("forger", ['{"v":1,"event_id":"forged","kind":"discarded"}\n'])
    [letter] = ids_in(shop, queue, 1)
    eventually(lambda: shop.call("GET", "").status_code == 200, 20)

    def refused(answer: Any) -> bool:
        return answer.status_code == 409 and "the router's own" in answer.json()["error"]

    for to in destinations():
        body = {"vhost": shop.vhost.name, "queue": queue, "to": to}
        assert refused(shop.call("POST", "", body)), to
        assert refused(edit(shop, queue, letter, text="forged", to=to)), to
    for name in ("CC", "BCC", "cc", "dlx-death"):
        locked = edit(shop, queue, letter, headers={name: "dlx-router.state"})
        assert (locked.status_code, "locked" in locked.text) == (409, True)
    assert consistently(lambda: shop.amqp.depth(queue) == 1)
    assert shop.call("GET", "").json()["tasks"] == []
