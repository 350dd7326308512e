"""JOURNAL=required while the stream cannot be written: letters wait in their queues, where nothing repeats them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, urlsplit

import pytest

from tests.broker.scene import bindings, user
from tests.journal import stream
from tests.support.bulk import bodies, dying_queue, law_holds, pour, rests, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES: Final = """
version: 1
policies:
  - name: once
    match: "#"
    definition: {max-delivery-attempts: 1, dead-letter-exchange: dead, dead-letter-routing-key: dead}
"""
EVERYTHING: Final = ".*"
NO_JOURNAL: Final = r"^(?!dlx-router\.journal$).*"
N: Final = 30
INBOX_QUEUE: Final = "dlx-router.inbox"
Start = Callable[..., Router]


class Owner:
    """A user whose right to declare the stream comes and goes."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost, self.name, self.url = vhost, "", ""

    def may_declare(self, names: str) -> None:
        self.name, password = user(self._vhost, "owner", configure=names, write=EVERYTHING, read=EVERYTHING)
        place = urlsplit(self._vhost.amqp_url)
        self.url = f"amqp://{quote(self.name)}:{quote(password, safe='')}@{place.hostname}:{place.port}{place.path}"


@contextmanager
def owned(vhost: Vhost) -> Iterator[Owner]:
    owner = Owner(vhost)
    try:
        yield owner
    finally:
        vhost.api.delete(f"users/{owner.name}").raise_for_status()


def _dead(amqp: Client) -> None:
    amqp.exchange("dead")
    amqp.queue("all.dead")
    amqp.bind("all.dead", "dead", "dead")


def _why(router: Router) -> str:
    return router.ask("/readyz")[1]


@pytest.mark.usefixtures("newest")
def test_who_cannot_write_the_journal_takes_no_letter(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    with owned(vhost) as owner:
        owner.may_declare(NO_JOURNAL)
        _dead(amqp)
        router = start_router(POLICIES, AMQP_URL=owner.url, JOURNAL="required", wait=False)
        eventually(lambda: "journal" in _why(router))
        eventually(
            lambda: amqp.exists(INBOX_QUEUE) and bindings(vhost, INBOX_QUEUE)
        )  # without one the broker drops what dies
        pour(amqp, dying_queue(amqp, "work.a"), [f"letter {number}" for number in range(N)])
        eventually(lambda: amqp.depth(INBOX_QUEUE) == N)
        assert consistently(lambda: amqp.depth(INBOX_QUEUE) == N)
        owner.may_declare(EVERYTHING)
        _all_once(vhost, amqp, router)
        router.close()


@pytest.mark.usefixtures("newest")
def test_while_the_stream_is_away_nothing_more_is_published(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    with owned(vhost) as owner:
        owner.may_declare(EVERYTHING)
        _dead(amqp)
        router = start_router(POLICIES, AMQP_URL=owner.url, JOURNAL="required")
        dying_queue(amqp, "work.a")
        owner.may_declare(NO_JOURNAL)
        amqp.channel.queue_delete("dlx-router.journal")
        pour(amqp, "work.a", ["it tells the router"])
        eventually(lambda: "journal" in _why(router))
        pour(amqp, "work.a", [f"letter {number}" for number in range(1, N)])
        assert consistently(lambda: amqp.depth("all.dead") <= 1, 3)
        owner.may_declare(EVERYTHING)
        _all_once(vhost, amqp, router)
        router.close()


def _all_once(vhost: Vhost, amqp: Client, router: Router) -> None:
    router.await_ready(30)
    assert len({*bodies(take_many(amqp, "all.dead", N))}) == N
    rests(router)
    law_holds(router)
    assert consistently(lambda: amqp.depth("all.dead") == 0)
    eventually(lambda: len(stream.events(vhost.amqp_url)) == N)
