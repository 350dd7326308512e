"""Letters wait in every rung while one version of the router takes the place of another: a part of `make upgrade`.

    python -m tools.release.rungs              # from the release before to this tree
    python -m tools.release.rungs --back       # and back

The first router decides about letters of one queue for each rung, and is stopped. The second begins with the same key.
Short rungs end by themselves. For long ones this program does what the broker would at their end: it takes each letter
out of its rung and publishes it, as it is, to `dlx-router.release`.

Then each letter must be in its queue once, not a moment too early, after one death; it is rejected once more, and must
lie dead after two, with the id that it had; and the journal must tell all of it, read by a reader that shares no code
with the package.

The auditor is plain pika. Exit: 0 all of it holds · 1 something does not · 2 the run could not be made.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pika

from dlx_router.core.names import RUNGS
from tests.journal import plain_reader
from tests.support.bulk import INBOX, law_holds, record
from tests.support.client import Client, Message
from tests.support.router import Router
from tools.brokers import Node
from tools.brokers.programs import provide
from tools.polling import stream, until
from tools.release import before
from tools.release.upgrade import UpgradeError, furnish, verdict

JOURNAL: Final = "dlx-router.journal"
RELEASE: Final = "dlx-router.release"
DEAD: Final = "up.dead"
LETTERS: Final = 3  # in each rung
BY_THEMSELVES_MS: Final = 4_000  # these are waited for, and looked at all the while
CERTAIN_MS: Final = 60_000  # from here on none can be over before the second router is there
EARLY_MS: Final = RUNGS[0]  # so much less than asked for is the law, and no more
WITHIN_S: Final = 90.0
KINDS: Final = {"retried": 1, "released": 1, "dead_lettered": 1}


@dataclass
class Change:
    """One run. `wrong`: what does not hold."""

    first: str
    second: str
    failed_at: dict[str, float] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        over, rungs = sum(self.held.values()), sum(map(bool, self.held.values()))
        outcome = "; ".join(self.wrong) or "nothing lost, none twice, none early, all of it told"
        letters = f"{len(self.failed_at)} letters in {len(RUNGS)} rungs"
        return (
            f"{self.first} → {self.second}: {letters}, {over} of them still in {rungs} rungs at the change: {outcome}"
        )


@dataclass(frozen=True)
class Place:
    """A vhost for the run, and a folder for what the routers need."""

    amqp_url: str
    management_url: str
    folder: Path
    old: Path

    def router(self, *, is_old: bool) -> Router:
        """Not started."""
        env = {"PROVENANCE_KEY_FILE": str(self.folder / "key"), "JOURNAL": "required"}
        return Router(
            amqp_url=self.amqp_url,
            management_url=self.management_url,
            policies=self.folder / "policies",
            log=self.folder / f"router-{'old' if is_old else 'new'}.log",
            env=env,
            **({"tree": self.old} if is_old else {}),
        )


def work(ms: int) -> str:
    """The queue whose letters wait in this rung."""
    return f"up.{ms}"


def rung(ms: int) -> str:
    """As the broker has it."""
    return f"dlx-router.delay.{ms}"


def run(place: Place, *, goes_back: bool) -> Change:
    """Everything; the vhost is left as it is."""
    furnish(place.folder, _policies())
    names = (before.LAST, "this tree")
    done = Change(*(reversed(names) if goes_back else names))
    with ExitStack() as stack:
        first, second = (place.router(is_old=old) for old in (not goes_back, goes_back))
        for router in (first, second):
            stack.callback(router.close)
        client = stack.enter_context(Client(place.amqp_url))
        first.start(within=60)
        _fail_all(client, first, done)
        first.stop()
        second.start(within=60)
        _wait_for_short(client, done)
        _end_long(client, done)
        _judge_first(client, done)
        _judge_last(client, second, done)
    _judge_journal(place.amqp_url, done)
    return done


def _policies() -> str:
    end = f'max-delivery-attempts: 2, dead-letter-exchange: "", dead-letter-routing-key: {DEAD}'
    lines = (f"  - {{name: r{ms}, queue: {work(ms)}, definition: {{redelivery-delay: {ms}ms, {end}}}}}" for ms in RUNGS)
    return "version: 1\npolicies:\n" + "\n".join(lines) + "\n"


def _fail_all(client: Client, router: Router, done: Change) -> None:
    """Each letter is rejected once, those with the longest wait first."""
    client.queue(DEAD)
    for ms in RUNGS:
        client.queue(work(ms), dead_letter_exchange=INBOX)
    for ms in reversed(RUNGS):
        for number in range(LETTERS):
            name = f"{work(ms)} {number}"
            client.publish(name, key=work(ms), message_id=name)
            client.fail(work(ms))
            done.failed_at[name] = time.monotonic()
    _until(lambda: router.metric("settled_total", action="retry") == len(done.failed_at), "not all were decided about")


def _wait_for_short(client: Client, done: Change) -> None:
    """Looked at all the while: whoever is back too early is seen."""
    short = [ms for ms in RUNGS if ms <= BY_THEMSELVES_MS]
    back: dict[int, int] = dict.fromkeys(short, 0)

    def all_back() -> bool:
        for ms in short:
            depth, now = client.depth(work(ms)), time.monotonic()
            due = sorted(done.failed_at[f"{work(ms)} {number}"] + (ms - EARLY_MS) / 1000 for number in range(LETTERS))
            if depth > sum(moment <= now for moment in due):
                done.wrong.append(f"of {work(ms)} {depth} are back before their time")
            back[ms] = depth
        return all(depth == LETTERS for depth in back.values())

    _until(all_back, "those of short rungs are not back")
    done.held = {ms: client.depth(rung(ms)) for ms in RUNGS if ms > BY_THEMSELVES_MS}
    lost = [ms for ms in RUNGS if ms >= CERTAIN_MS and (done.held[ms], client.depth(work(ms))) != (LETTERS, 0)]
    if lost:
        done.wrong.append(f"not all are in their rungs: {lost}")


def _end_long(client: Client, done: Change) -> None:
    """As the broker does when the time of a rung is over."""
    for ms in done.held:
        while (letter := client.get(rung(ms))) is not None:
            kept = {"delivery_mode": 2, "message_id": letter.properties.message_id}
            client.publish(letter.body, exchange=RELEASE, key=letter.routing_key, headers=letter.headers, **kept)
            letter.ack()
    _until(lambda: all(client.depth(work(ms)) >= LETTERS for ms in RUNGS), "those of long rungs are not back")


def _judge_first(client: Client, done: Change) -> None:
    """Once each, after one death; and they die again."""
    for ms in RUNGS:
        letters = list(_all(client, work(ms)))
        wanted = [f"{work(ms)} {number}" for number in range(LETTERS)]
        if sorted(letter.body.decode() for letter in letters) != wanted:
            done.wrong.append(f"in {work(ms)} are {[letter.body.decode() for letter in letters]}")
        for letter in letters:
            _check_letter(letter, ms, 1, done)
            done.ids[letter.body.decode()] = record(letter)["id"]
            letter.reject()


def _judge_last(client: Client, router: Router, done: Change) -> None:
    """Dead after two, each the letter that it was."""
    _until(lambda: client.depth(DEAD) >= len(done.failed_at), "not all are dead in the end")
    letters = [letter.ack() for letter in _all(client, DEAD)]
    bodies = Counter(letter.body.decode() for letter in letters)
    if bodies != Counter(done.failed_at.keys()):
        done.wrong.append(
            f"dead are {bodies.total()} letters of {len(bodies)} names, not {len(done.failed_at)} each once"
        )
    for letter in letters:
        name = letter.body.decode()
        _check_letter(letter, int(name.partition(" ")[0].removeprefix("up.")), 2, done)
        if record(letter)["id"] != done.ids.get(name):
            done.wrong.append(f"{name} is another letter now")
    if [queue for queue in ("dlx-router.parking", "dlx-router.quarantine") if client.depth(queue)]:
        done.wrong.append("something lies in parking or quarantine")
    _until(lambda: router.metric("in_flight") == 0, "something stays in flight")
    law_holds(router)


def _check_letter(letter: Message, ms: int, times: int, done: Change) -> None:
    """By x-death and by the record."""
    deaths = [(death["queue"], death["reason"], death["count"]) for death in letter.deaths]
    attempts = record(letter)["attempts"]
    if (deaths, attempts) != ([(work(ms), "rejected", times)], times):
        done.wrong.append(f"{letter.body.decode()} says {deaths}, attempts {attempts}, after {times} deaths")


def _all(client: Client, queue: str) -> Iterator[Message]:
    letters = []
    while (letter := client.get(queue)) is not None:
        letters.append(letter)
    yield from letters


def _judge_journal(amqp_url: str, done: Change) -> None:
    """Each letter by each of its steps, whichever router told it; an event that stands there twice is one."""
    steps: dict[str, set[tuple[str, str]]] = {}
    for event in _events(amqp_url):
        steps.setdefault(event["props"].get("message_id", ""), set()).add((event["event_id"], event["kind"]))
    for name in done.failed_at:
        kinds = Counter(kind for _, kind in steps.get(name, ()))
        if kinds != KINDS:
            done.wrong.append(f"the journal tells of {name} {dict(kinds)}")


def _events(amqp_url: str) -> Iterator[dict[str, Any]]:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    for properties, body in stream(connection, JOURNAL, idle_s=2.0):
        yield from (
            event for event in plain_reader.events(properties.content_encoding, body) if "failed_queue" in event
        )
    connection.close()


def _until(look: Any, otherwise: str) -> None:  # noqa: ANN401 - a question
    until(look, lambda: UpgradeError(otherwise), within_s=WITHIN_S, every_s=0.02)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--back", action="store_true", help="from this tree to the release before")
    parser.add_argument("--broker", default="4.3", help="version of RabbitMQ (default 4.3)")
    given = parser.parse_args(argv)
    return verdict(lambda: _run_alone(given.broker, goes_back=given.back))


def _run_alone(version: str, *, goes_back: bool) -> Change:
    """On a private node that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-rungs-") as folder, ExitStack() as stack:
        old = before.unpacked(before.LAST, Path(folder) / "old")
        node = Node(provide(version))
        stack.callback(node.close)
        return run(Place(node.amqp_url, node.management_url, Path(folder), old), goes_back=goes_back)


if __name__ == "__main__":
    sys.exit(main())
