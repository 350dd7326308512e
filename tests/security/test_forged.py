"""Letters that somebody else wrote into our queues, with records that lie: kept, counted, never obeyed.

The forger may write anywhere in the vhost, and has seen a true record: each retry shows one to its consumer.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.security.conftest import EVERYTHING, Admit, url_for
from tests.support.bulk import INBOX, PARKING, QUARANTINE, law_holds, record
from tests.support.client import Client, Message
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

Start = Callable[..., Router]

RELEASE: Final = "dlx-router.release"
RUNG: Final = "dlx-router.delay."
POLICIES: Final = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 3, redelivery-delay: 200ms}}
"""


@contextmanager
def _forger(vhost: Vhost, admit: Admit) -> Iterator[Client]:
    with Client(url_for(vhost, admit(*EVERYTHING))) as client:
        yield client


def _retried(amqp: Client) -> Message:
    """A letter that came back, as its consumer sees it; the rung and the bindings are there from then on."""
    amqp.queue("victim")
    amqp.queue("work.a", dead_letter_exchange=INBOX)
    amqp.publish("true", key="work.a")
    amqp.fail("work.a")
    return amqp.take("work.a")


def _place(vhost: Vhost, name: str) -> str:
    """The exchange of that name; of a rung any that is there, for a millisecond decides which is used."""
    return next(queue for queue in eventually(vhost.queues) if queue.startswith(name))


def _signed_for_another_body(true: str) -> str:
    return true


def _without_mac(true: str) -> str:
    return json.dumps({key: value for key, value in json.loads(true).items() if key != "mac"})


def _with_another_mac(true: str) -> str:
    return json.dumps(json.loads(true) | {"mac": "0" * 32}, separators=(",", ":"))


def _to_another_queue(true: str) -> str:
    return json.dumps(json.loads(true) | {"failed_queue": "victim"}, separators=(",", ":"))


def _due_at_once(true: str) -> str:
    return json.dumps(json.loads(true) | {"due_ms": 0, "attempts": -1000}, separators=(",", ":"))


def _nonsense(_true: str) -> str:
    return "{" * 1000


FORGERIES: Final = [_without_mac, _with_another_mac, _to_another_queue, _due_at_once, _nonsense]


def _depth_of_victims(amqp: Client) -> int:
    return amqp.depth("victim") + amqp.depth("work.a")


def test_a_forged_record_is_never_obeyed_at_the_end_of_a_wait(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    router = start_router(POLICIES)
    true = _retried(amqp)
    forgeries = [*FORGERIES, _signed_for_another_body]
    with _forger(vhost, admit) as forger:
        for place in (RELEASE, RUNG):
            for forgery in forgeries:
                forged = dict(true.headers) | {"dlx-router": forgery(true.headers["dlx-router"])}
                forger.publish(forgery.__name__, key="", exchange=_place(vhost, place), headers=forged)
                kept = amqp.take(QUARANTINE)
                assert kept.body.decode() == forgery.__name__
                assert kept.headers["dlx-router"] == forged["dlx-router"], "as it came"
    assert consistently(lambda: _depth_of_victims(amqp) == 0)
    eventually(lambda: router.metric("settled_total", action="quarantine") == 2 * len(forgeries))
    assert RELEASE in router.output, "the log names the place"
    eventually(partial(law_holds, router))


def test_a_forged_record_in_the_inbox_is_foreign_data(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    start_router(POLICIES)
    true = _retried(amqp)
    with _forger(vhost, admit) as forger:
        for forgery in FORGERIES:
            headers = {"dlx-router": forgery(true.headers["dlx-router"])}
            forger.publish(forgery.__name__, key="", exchange=INBOX, headers=headers)
            parked = amqp.take(PARKING)
            assert parked.body.decode() == forgery.__name__
            header = record(parked)
            assert (header["cause"], header["attempts"]) == ("unknown_origin", 0)
            assert header["id"] != record(true)["id"], "a letter of its own"
    assert consistently(lambda: _depth_of_victims(amqp) == 0)


def test_a_true_record_on_another_message_makes_a_letter_of_its_own(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    start_router(POLICIES)
    true = _retried(amqp)
    with _forger(vhost, admit) as forger:
        forger.publish("forged", key="", exchange=INBOX, headers={"dlx-router": true.headers["dlx-router"]})
    header = record(amqp.take(PARKING))
    assert (header["cause"], header["parent"]) == ("unknown_origin", record(true)["id"])
    assert consistently(lambda: _depth_of_victims(amqp) == 0)


def test_a_message_without_a_record_is_quarantined_at_the_end_of_a_wait(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    start_router(POLICIES)
    _retried(amqp)
    with _forger(vhost, admit) as forger:
        for place in (RELEASE, RUNG):
            forger.publish("stray", key="victim", exchange=_place(vhost, place))
            assert amqp.take(QUARANTINE).body == b"stray"
    assert amqp.depth("victim") == 0


HOSTILE: Final[list[Any]] = ["x" * 100_000, 7, ["a"], {"a": {"b": 1}}, None, "\u0000", '{"v":1,"mac":"']


def test_whatever_stands_in_the_headers_the_router_goes_on(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    router = start_router(POLICIES)
    _retried(amqp)
    names = ("dlx-router", "dlx-router-id", "dlx-router-pub", "x-first-death-queue")
    headers = [{name: value} for value in HOSTILE for name in names] + [{"CC": ["a"]}]  # of CC the broker takes a list
    with _forger(vhost, admit) as forger:
        for given in headers:
            for place in (INBOX, RELEASE):
                forger.publish("odd", key="", exchange=place, headers=given)
    eventually(lambda: router.metric("in_flight") == 0 and amqp.depth(INBOX) == amqp.depth(RELEASE) == 0)
    amqp.publish("next", key="work.a")
    amqp.fail("work.a")
    assert amqp.take("work.a").body == b"next"
    eventually(lambda: amqp.depth(PARKING) + amqp.depth(QUARANTINE) == 2 * len(headers))


def test_a_queue_that_somebody_declared_under_our_name_is_left_as_it_is(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    amqp.queue(PARKING, "quorum", max_length=1000)
    router = start_router(POLICIES, wait=False)
    eventually(lambda: PARKING in router.ask("/readyz")[1] and "x-max-length" in router.ask("/readyz")[1], within=20)
    assert vhost.get(f"queues/{vhost.quoted}/{PARKING}")["arguments"]["x-max-length"] == 1000


# -- one key for several vhosts ---------------------------------------------------------------------------------------


@pytest.fixture
def other(vhost: Vhost) -> Iterator[Vhost]:
    """A second vhost that the same router serves, with the same key."""
    second = Vhost.make(vhost.broker, f"{vhost.name}-other")
    yield second
    second.close()


def test_a_true_record_is_not_obeyed_in_another_vhost(
    vhost: Vhost, other: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o400)
    router = start_router(POLICIES, VHOSTS=f"{vhost.name},{other.name}", PROVENANCE_KEY_FILE=str(key))
    true = _retried(amqp)
    with Client(other.amqp_url) as there:
        there.queue("work.a")
        copied = {"dlx-router": true.headers["dlx-router"]}
        there.publish(true.body, key="", exchange=RELEASE, headers=copied)
        kept = there.take(QUARANTINE)
        assert (kept.body, kept.headers["dlx-router"]) == (true.body, copied["dlx-router"])
        assert f"of vhost '{vhost.name}'" in kept.headers["dlx-router-cause"]
        there.publish(true.body, key="", exchange=INBOX, headers=copied)
        header = record(there.take(PARKING))
        assert (header["vhost"], header["cause"], header["attempts"]) == (other.name, "unknown_origin", 0)
        assert header["id"] != record(true)["id"]
        assert consistently(lambda: there.depth("work.a") == 0)
    assert router.metric("foreign_records_total", vhost=other.name) == 1
    assert router.metric("foreign_records_total", vhost=vhost.name) == 0
