"""Upgrade router and broker while letters wait in every rung (delay queue): `make upgrade`.

    python -m tools.release.upgrade              # the router before, RabbitMQ 4.0 → this tree, RabbitMQ 4.3 in place
    python -m tools.release.upgrade --back       # this tree → the router before, on RabbitMQ 4.3

The first router decides about letters of one queue for each rung, and is stopped. The broker is upgraded on its data,
with all feature flags enabled before. The second router starts with the same key. Short rungs end by themselves; from
the others this program takes each letter and publishes it to `dlx-router.release`, as the broker would.

Then each letter must be in its queue once, not too early, after one death; it is rejected once more and must be dead
after two, with the id that it had; and the journal must have all of it. The auditor is plain pika.
Exit: 0 all of it holds · 1 something does not · 2 the run could not be made.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pika

from dlx_router.core.names import RUNGS
from tests.journal import plain_reader
from tests.support.bulk import INBOX, law_holds, record
from tests.support.client import Client, Message
from tests.support.router import Router, RouterEndedError
from tools.brokers import BrokerError, Node
from tools.brokers.programs import provide
from tools.polling import stream, until
from tools.release.history import LAST, ROOT, HistoryError, release_before

DEAD: Final = "up.dead"
LETTERS: Final = 3  # in each rung
BY_THEMSELVES_MS: Final = 4_000  # shorter rungs are waited for
CERTAIN_MS: Final = 600_000  # no longer rung can be over when the second router starts
KINDS: Final = {"retried": 1, "released": 1, "dead_lettered": 1}


class UpgradeError(Exception):
    """The run could not be made; says why."""


@dataclass
class Upgrade:
    """A run in a vhost. `old`: the source of the release before; `goes_back`: from this tree to that one."""

    amqp_url: str
    management_url: str
    folder: Path
    old: Path
    goes_back: bool = False
    failed_at: dict[str, float] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = [LAST, "this tree"]
        outcome = "; ".join(self.wrong) or "none lost, none twice, none early, all in the journal"
        letters = f"{len(self.failed_at)} letters, {sum(self.held.values())} of them in rungs at the change"
        return f"{' → '.join(reversed(names) if self.goes_back else names)}: {letters}: {outcome}"

    def run(self, change: Callable[[], object] = lambda: None) -> "Upgrade":
        """Do all of it; `change` is called between the two routers."""
        (self.folder / "policies").mkdir()
        (self.folder / "policies" / "upgrade.yaml").write_text(_policies(), encoding="utf-8")
        (self.folder / "key").write_text(secrets.token_hex(32), encoding="utf-8")
        first, second = self._router(is_old=not self.goes_back), self._router(is_old=self.goes_back)
        try:
            first.start(within=60)
            with Client(self.amqp_url) as client:
                self._fail_all(client, first)
            first.stop()
            change()
            second.start(within=120)
            with Client(self.amqp_url) as client:
                self._await_short(client)
                self._end_long(client)
                self._judge(client, second)
        finally:
            first.close()
            second.close()
        self._judge_journal()
        return self

    def _router(self, *, is_old: bool) -> Router:
        env = {"PROVENANCE_KEY_FILE": str(self.folder / "key"), "JOURNAL": "required"}
        log = self.folder / f"router-{'old' if is_old else 'new'}.log"
        return Router(
            amqp_url=self.amqp_url, management_url=self.management_url, policies=self.folder / "policies", log=log,
            env=env, tree=self.old if is_old else ROOT,
        )  # fmt: skip

    def _fail_all(self, client: Client, router: Router) -> None:
        """Reject each letter once, those with the longest wait first."""
        client.queue(DEAD)
        for ms in reversed(RUNGS):
            client.queue(_work(ms), dead_letter_exchange=INBOX)
            for number in range(LETTERS):
                name = f"{_work(ms)} {number}"
                client.publish(name, key=_work(ms), message_id=name)
                client.fail(_work(ms))
                self.failed_at[name] = time.monotonic()
        total = len(self.failed_at)
        _until(lambda: router.metric("settled_total", action="retry") == total, "not all were decided about")

    def _await_short(self, client: Client) -> None:
        """Watch letters of short rungs come back, none before its time."""
        short = [ms for ms in RUNGS if ms <= BY_THEMSELVES_MS]

        def all_back() -> bool:
            for ms in short:
                depth, now = client.depth(_work(ms)), time.monotonic()
                due = [self.failed_at[f"{_work(ms)} {at}"] + (ms - RUNGS[0]) / 1000 for at in range(LETTERS)]
                if depth > sum(moment <= now for moment in due):
                    self.wrong.append(f"of {_work(ms)} {depth} are back before their time")
            return all(client.depth(_work(ms)) == LETTERS for ms in short)

        _until(all_back, "those of short rungs are not back")
        self.held = {ms: client.depth(_rung(ms)) for ms in RUNGS if ms > BY_THEMSELVES_MS}
        if lost := [ms for ms in RUNGS if ms >= CERTAIN_MS and self.held[ms] != LETTERS]:
            self.wrong.append(f"not all are in their rungs: {lost}")

    def _end_long(self, client: Client) -> None:
        for ms in self.held:
            while (letter := client.get(_rung(ms))) is not None:
                client.publish(
                    letter.body, exchange="dlx-router.release", key=letter.routing_key, headers=letter.headers,
                    delivery_mode=2, message_id=letter.properties.message_id,
                )  # fmt: skip
                letter.ack()
        _until(lambda: all(client.depth(_work(ms)) >= LETTERS for ms in RUNGS), "those of long rungs are not back")

    def _judge(self, client: Client, router: Router) -> None:
        """Once each after one death; rejected again, once each and dead after two."""
        ids: dict[str, str] = {}
        for ms in RUNGS:
            letters = _all(client, _work(ms))
            if (bodies := sorted(_name(one) for one in letters)) != [f"{_work(ms)} {at}" for at in range(LETTERS)]:
                self.wrong.append(f"in {_work(ms)} are {bodies}")
            for letter in letters:
                self._check(letter, 1)
                ids[_name(letter)] = record(letter)["id"]
                letter.reject()
        _until(lambda: client.depth(DEAD) >= len(self.failed_at), "not all are dead in the end")
        dead = [letter.ack() for letter in _all(client, DEAD)]
        if Counter(map(_name, dead)) != Counter([*self.failed_at]):
            self.wrong.append(f"{len(dead)} letters of {len({*map(_name, dead)})} names are dead")
        for letter in dead:
            self._check(letter, 2)
            if record(letter)["id"] != ids.get(_name(letter)):
                self.wrong.append(f"{_name(letter)} has another id now")
        if [queue for queue in ("dlx-router.parking", "dlx-router.quarantine") if client.depth(queue)]:
            self.wrong.append("something lies in parking or quarantine")
        _until(lambda: router.metric("in_flight") == 0, "something stays in flight")
        law_holds(router)

    def _check(self, letter: Message, times: int) -> None:
        deaths = [(death["queue"], death["reason"], death["count"]) for death in letter.deaths]
        attempts, queue = record(letter)["attempts"], _name(letter).partition(" ")[0]
        if (deaths, attempts) != ([(queue, "rejected", times)], times):
            self.wrong.append(f"{_name(letter)} has {deaths}, attempts {attempts}, after {times} deaths")

    def _judge_journal(self) -> None:
        """Each letter has each of its steps; an event that is there twice is one."""
        steps: dict[str, set[tuple[str, str]]] = {}
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        for properties, body in stream(connection, "dlx-router.journal", idle_s=2.0):
            for event in plain_reader.events(properties.content_encoding, body):
                if "failed_queue" in event:
                    name = event["props"].get("message_id", "")
                    steps.setdefault(name, set()).add((event["event_id"], event["kind"]))
        connection.close()
        for name in self.failed_at:
            if (kinds := Counter(kind for _, kind in steps.get(name, ()))) != KINDS:
                self.wrong.append(f"the journal has {dict(kinds)} of {name}")


def _work(ms: int) -> str:
    return f"up.{ms}"


def _rung(ms: int) -> str:
    return f"dlx-router.delay.{ms}"


def _name(letter: Message) -> str:
    return letter.body.decode()


def _policies() -> str:
    end = f'max-delivery-attempts: 2, dead-letter-exchange: "", dead-letter-routing-key: {DEAD}'
    lines = (
        f"  - {{name: r{ms}, queue: {_work(ms)}, definition: {{redelivery-delay: {ms}ms, {end}}}}}" for ms in RUNGS
    )
    return "version: 1\npolicies:\n" + "\n".join(lines) + "\n"


def _all(client: Client, queue: str) -> list[Message]:
    letters = []
    while (letter := client.get(queue)) is not None:
        letters.append(letter)
    return letters


def _until(look: Callable[[], bool], otherwise: str) -> None:
    until(look, lambda: UpgradeError(otherwise), within_s=600, every_s=0.1)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--back", action="store_true", help="from this tree to the release before")
    goes_back = bool(parser.parse_args(argv).back)
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-upgrade-") as folder:
            old = release_before(Path(folder) / "old")
            node = Node(provide("4.3" if goes_back else "4.0"))

            def upgraded() -> None:
                node.rabbitmqctl("enable_feature_flag", "all")
                node.stop()
                node.become(provide("4.3"))
                node.start()

            try:
                done = Upgrade(node.amqp_url, node.management_url, Path(folder), old, goes_back)
                done.run(upgraded if not goes_back else lambda: None)
            finally:
                node.close()
    except (BrokerError, UpgradeError, RouterEndedError, HistoryError) as error:
        print(error, file=sys.stderr)
        return 2
    print(done)
    return int(bool(done.wrong))


if __name__ == "__main__":
    sys.exit(main())
