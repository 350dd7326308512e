"""`dlx-router permissions`: what it prints is enough for every way of a letter, and each right is needed.

A user with one right less makes the router say which name it may not use; the letters are still there.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.config.rights.permissions import Grant, Need, Setup, needed
from dlx_router.core.names import Names
from tests.cli.test_cli import in_a_process
from tests.security.conftest import Admit, allow, rights_of, url_for
from tests.support.bulk import INBOX, PARKING, dying_queue
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.version_draw import share
from tests.support.vhost import Vhost

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
attachments: [{queue: old.failed}]
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 2, redelivery-delay: 200ms}}
  - {name: shop, queue: shop, definition: {dead-letter-exchange: shop.dlx, max-delivery-attempts: 1}}
  - {name: old, queue: old.failed, definition: {dead-letter-exchange: shop.dlx, max-delivery-attempts: 1}}
  - name: made
    match: "made.#"
    definition:
      {dead-letter-exchange: makers, auto-create-dead-letter-resources: true, max-delivery-attempts: 1}
"""
ENDS: Final = {
    "work.a": "DLQ.work.a",
    "made.a": "DLQ.made.a",
    "work.x": "DLQ.transient",
    "made.x": "DLQ.transient",
    "shop": "shop.dead",
    "old.failed": "shop.dead",
    "lost": PARKING,
}
REFUSED: Final = re.compile(r"(?:(configure|write|read) )?access to (?:queue|exchange) '+([^']+)'")


def _grant(setup: Setup) -> Grant:
    with TemporaryDirectory() as folder:
        (Path(folder) / "policies.yaml").write_text(POLICIES, encoding="utf-8")
        return needed(load_policies(Path(folder)).policies, ["old.failed"], setup, "/")


AUTO: Final = _grant(Setup(Names(), journal=True))
NEVER: Final = _grant(Setup(Names(), declare=False, journal=True))


@contextmanager
def _shop(vhost: Vhost) -> Iterator[Client]:
    with Client(vhost.amqp_url) as client:
        client.queue("work.a", dead_letter_exchange=INBOX)
        client.queue("old.failed")
        for queue in ("made.a", "shop", "lost"):
            dying_queue(client, queue)
        for queue in ("made.x", "work.x"):
            dies = {"x-message-ttl": 0, "x-dead-letter-exchange": INBOX}
            client.channel.queue_declare(queue, exclusive=True, arguments=dies)
        client.bind(client.queue("shop.dead"), client.exchange("shop.dlx", "fanout"))
        yield client


def _letters(client: Client, *, inbox: bool = True) -> None:
    """One for each way, called as its queue; without an inbox only those that can wait for one."""
    client.publish("old.failed", key="old.failed")
    client.publish("work.a", key="work.a")
    if inbox:
        for queue in ENDS.keys() - {"old.failed", "work.a"}:
            client.publish(queue, key=queue)
        client.fail("work.a")


@pytest.mark.slow
def test_what_is_printed_is_enough_for_every_way_of_a_letter(
    vhost: Vhost, admit: Admit, start_router: Start, tmp_path: Path
) -> None:
    (tmp_path / "policies.yaml").write_text(POLICIES, encoding="utf-8")
    user = admit("^$", "^$", "^$")
    url = url_for(vhost, user)
    asked = ("permissions", "--policies", str(tmp_path), "--format", "json")
    done = in_a_process(*asked, AMQP_URL=url)
    assert done.returncode == 0, done.stderr
    (printed,) = json.loads(done.stdout)["permissions"]
    assert (printed.pop("user"), printed.pop("vhost")) == (user, vhost.name)
    allow(vhost, user, **printed)
    with _shop(vhost) as client:
        router = start_router(tmp_path, AMQP_URL=url)
        _letters(client)
        client.fail("work.a")
        bodies = [client.take(queue).body.decode() for queue in ENDS.values()]
        assert sorted(bodies) == sorted(ENDS)
    assert "ACCESS_REFUSED" not in router.output
    assert "forbidden" not in router.output


SAFE: Final[dict[str, Any]] = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_who_may_not_declare_needs_less(vhost: Vhost, admit: Admit, start_router: Start) -> None:
    with _shop(vhost) as client:
        start_router(POLICIES).stop()
        client.queue("DLQ.work.a")
        client.bind(client.queue("DLQ.transient"), client.exchange("makers"), "DLQ.transient")
        client.bind("work.a", "dlx-router.return", "to:work.a")
        client.bind(client.queue("DLQ.made.a"), client.exchange("makers"), "DLQ.made.a")
        for rung in (100, 125, 150, 200):
            name = f"dlx-router.delay.{rung}"
            client.queue(name, "quorum", message_ttl=rung, dead_letter_exchange="dlx-router.release", **SAFE)
            client.bind(name, client.exchange(name, "fanout"))
        url = url_for(vhost, admit(*rights_of(NEVER)))
        router = start_router(POLICIES, AMQP_URL=url, DECLARE="never")
        _letters(client)
        client.fail("work.a")
        assert sorted(client.take(queue).body.decode() for queue in ENDS.values()) == sorted(ENDS)
    assert "ACCESS_REFUSED" not in router.output


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("need", share(AUTO.needs, 4), ids=lambda need: f"{need.right}-{need.names}")
def test_with_one_right_less_the_router_says_which_and_loses_nothing(
    need: Need, vhost: Vhost, admit: Admit, start_router: Start
) -> None:
    if need.looks and vhost.broker.version < "4.2":
        pytest.skip("this version asks no right of who looks")
    with _shop(vhost) as client:
        url = url_for(vhost, admit(*rights_of(AUTO.without(need))))
        # What has no rung stays in flight, and would be waited for as long as a drain may last.
        router = start_router(POLICIES, wait=False, AMQP_URL=url, UNROUTABLE_GRACE="1s", DRAIN_SECONDS="2")
        eventually(lambda: router.ask("/readyz")[0])
        has_inbox = not _refused_at_start(router, client)
        _letters(client, inbox=has_inbox)
        eventually(lambda: _names_it(router, need, client if has_inbox else None), within=40)
        router.stop()
        meant, seen = {*ENDS} if has_inbox else {"old.failed", "work.a"}, set[str]()
        eventually(lambda: meant <= _seen(seen, _everywhere(vhost, client)))  # one may be between two queues


def _refused_at_start(router: Router, client: Client) -> bool:
    """Whether it says so before there is an inbox."""
    eventually(lambda: router.ask("/readyz")[0] == 200 or "ACCESS_REFUSED" in router.ask("/readyz")[1], 40)
    return not client.exists(INBOX) or router.ask("/readyz")[0] != 200


def _names_it(router: Router, need: Need, client: Client | None) -> bool:
    """The log or /readyz names what may not be used, and where the broker says it the right.

    Who may not even look is told of `configure`, whatever right would do. The last attempt fails meanwhile.
    """
    if client is not None and (again := client.get("work.a")) is not None:
        again.reject()
    text = router.output + router.ask("/readyz")[1]
    names = [
        name
        for right, name in REFUSED.findall(text)
        if right in {"", "configure", need.right} and re.fullmatch(need.names, name)
    ]
    assert names, f"{need}\n{text[-3000:]}"
    return True


def _seen(before: set[str], now: Iterator[str]) -> set[str]:
    before.update(now)
    return before


def _everywhere(vhost: Vhost, client: Client) -> Iterator[str]:
    """The bodies of all messages of the vhost."""
    for queue in set(vhost.queues()) - {
        "dlx-router.state",
        "dlx-router.journal",
        "work.x",
        "made.x",
        "dlx-router.inbox.fifo",
    }:
        while (message := client.get(queue)) is not None:
            yield message.body.decode()


def test_a_user_that_only_monitors_lets_the_router_verify_the_policies_on_its_queues(
    vhost: Vhost, admit: Admit, start_router: Start
) -> None:
    user = admit("^$", "^$", "^$", tags="monitoring")
    parts = urlsplit(vhost.management_url)
    api = f"http://{user}:secret@{parts.hostname}:{parts.port}"
    router = start_router(POLICIES, wait=False, MANAGEMENT_URL=api)
    with _shop(vhost):
        router.await_ready()
    assert "not verified" not in router.ask("/readyz")[1]
