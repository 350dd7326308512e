"""What RabbitMQ cannot hand to any AMQP 0-9-1 client, taken out of the way by AMQP 1.0.

RabbitMQ 4.x ends the whole connection (541) when it should deliver a message that it cannot convert, puts the message
back, and would do so for ever. So after a 541 the queues that were consumed are looked at by AMQP 1.0, before they are
consumed again: what surely cannot be converted goes to quarantine as it came, all else back to its place. A 541 has
other causes too: then nothing is found, nothing is moved, and that is said.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.amqp10 import (
    ADVICE,
    CHANNELS,
    NATIVE_SINCE,
    Found,
    NotNative,
    Search,
    connected,
    described,
    first_found,
)
from dlx_router.broker.answers import INTERNAL_ERROR, LinkError
from dlx_router.config.units import number_of
from dlx_router.core.attending import RETURNS_FREE_SINCE, QueueFacts, Version, delivery_limit
from dlx_router.core.letter import Arrival, Letter, letter_id
from dlx_router.core.names import Names
from dlx_router.core.words import Action, Cause
from dlx_router.journal.event_factory import EventFactory
from dlx_router.journal.events import fragments, unreadable
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.own_queues_refusing import RefusingQueues
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import text
from dlx_router.service.queue_reads import Extraction
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire.amqp10 import ANNOTATIONS, Amqp10Error, sections

WINDOW: Final = 2000
MOST_WIDE: Final = 2
LEAST_LIMIT: Final = 4  # a return by the 541, two by wide looks, and one that is left
LOOKED_LIMIT: Final = 2  # a return by the 541, and one by a look: what is returned more often is deleted
BY_HAND: Final = "take it out with an AMQP 1.0 client, or purge the queue"
FRUITLESS: Final = 3  # searches in a row; after them one a minute
RARELY_S: Final = 60.0


class Suspect(NamedTuple):
    """A queue, and how many of its first messages are looked at: first, and then, where nothing was found.

    Before 4.3 each look is a return. A quorum queue puts what came back behind what came back before it: after a 541
    the culprit is the head where one letter was here, and anywhere among all that were here where they were many.
    """

    queue: str
    first: int
    then: int


Place = tuple[Host, Login, Tls | None]


class UnreadableHead:
    """Of one vhost. `suspect` after a session, `search` before the next."""

    def __init__(  # noqa: PLR0913 - whom it tells
        self,
        vhost: str,
        names: Names,
        *,
        journal: Journal,
        metrics: Metrics,
        readiness: Readiness,
        refusals: RefusingQueues,
        event_factory: Callable[[], EventFactory],
    ) -> None:
        self._vhost, self._names = vhost, names
        self._journal, self._metrics, self._readiness = journal, metrics, readiness
        self._refusals, self._event_factory = refusals, event_factory
        self._suspects: list[Suspect] = []
        self._not_looked: dict[str, str] = {}  # attached queues that no look is worth → why
        self._wide = 0  # looks that cost many letters of attached queues a return, since we are careful
        self._moved = self._fruitless = 0
        self._searched_s = 0.0
        self._once = Once()
        self.on_culprit: Callable[[str, int, str], None] = lambda _queue, _window, _left: (
            None
        )  # a message of the queue ended a session

    def suspect(self, queues: Mapping[str, int | None], version: Version, prefetch: int) -> None:
        """A connection that consumed these queues (→ how many returns are not deadly there) ended by 541."""
        if version < NATIVE_SINCE:
            return
        was_careful = self._refusals.is_careful
        self._wide = self._wide if was_careful else 0
        counts = version < RETURNS_FREE_SINCE
        if counts:  # one of a thousand that were here is the culprit, and each return counts
            self._refusals.be_careful()
        own = [self._own(queue, prefetch) for queue in queues if self._names.is_own(queue)]
        self._suspects, self._not_looked = own, {}
        for queue, limit in queues.items():
            if self._names.is_own(queue):
                continue
            if counts and limit is not None and limit < LOOKED_LIMIT:
                self._spare(queue, limit)
            else:
                spares = counts and (self._wide >= MOST_WIDE or (limit is not None and limit < LEAST_LIMIT))
                wide = 1 if spares else prefetch
                self._suspects.append(Suspect(queue, 1 if counts and was_careful else wide, wide))

    def _spare(self, queue: str, limit: int) -> None:
        """Its messages had a return by the 541 already, and a look would be the one that deletes them."""
        why = f"that is a return on this RabbitMQ, and the queue deletes a message at its return number {limit + 1}"
        way_out = "give it a dead-letter exchange or a higher delivery-limit"
        self._not_looked[queue] = f"{why}; {way_out}"
        fate = f"not looked at for what crashes RabbitMQ (541); {way_out}"
        self._once.warn(f"spared {queue}", "queue.not_searched", vhost=self._vhost, queue=queue, cause=why, fate=fate)

    def _own(self, queue: str, prefetch: int) -> Suspect:
        return Suspect(queue, 1, prefetch) if queue == self._names.fifo else Suspect(queue, WINDOW, WINDOW)

    def blame(self, error: Exception) -> None:
        """Something ended that was not a session: of the state queue alone is known that it consumes."""
        if f"{self._names.state!r}" in str(error) and f": {INTERNAL_ERROR} " in str(error):
            self._suspects, self._not_looked = [Suspect(self._names.state, WINDOW, WINDOW)], {}

    async def search(self, host: Host, login: Login, tls: Tls | None) -> bool:
        """Look through the suspects, if there are any; → whether a culprit is gone. Raises nothing of the broker's."""
        suspects, self._suspects = self._suspects, []
        refused, self._not_looked = self._not_looked, {}
        if not (suspects or refused) or not self._is_time():
            return False
        self._searched_s = time.monotonic()
        culprits: list[Found] = []
        place = host, login, tls
        try:
            await self._look([(suspect.queue, suspect.first) for suspect in suspects], place, culprits, refused)
            wider = [(suspect.queue, suspect.then) for suspect in suspects if suspect.then > suspect.first]
            if wider and not culprits:
                await self._look(wider, place, culprits, refused)
        except NotNative:
            return False  # there is nothing of this kind
        except LinkError as error:
            refused["AMQP 1.0"] = str(error)
        self._wide += any(suspect.then > 1 and not self._names.is_own(suspect.queue) for suspect in suspects)
        for queue, left in {culprit.queue: culprit.left for culprit in culprits}.items():
            self.on_culprit(queue, WINDOW, left)
        self._report([suspect.queue for suspect in suspects], culprits, refused)
        return any(not culprit.left for culprit in culprits)

    async def extract(self, place: Place, queue: str, window: int, facts: QueueFacts, version: Version) -> Extraction:
        """Move what AMQP 0-9-1 cannot carry out of the first messages of a queue on which a read failed.

        Where each look is a return (before 4.3), the first message is looked at, and all of them only if they survive.
        """
        if queue == self._names.quarantine:
            there = await first_found(place, [(queue, window)])
            return Extraction(0, described(there[0]) if there else "")
        windows = self._windows(queue, window, facts, version)
        culprits: list[Found] = []
        refused: dict[str, str] = {}
        is_complete = False
        try:
            for some in windows:
                is_complete = await self._look_at([(queue, some)], place, culprits, refused)
                if culprits:
                    break
        except NotNative:
            return Extraction(0, f"this RabbitMQ has no AMQP 1.0, by which the router could take it out; {BY_HAND}")
        except LinkError as error:
            refused[queue] = str(error)
        moved = [culprit for culprit in culprits if not culprit.left]
        if moved:
            self._note_moved(moved)
        left = [f"message {culprit.number} cannot be moved: {culprit.left}" for culprit in culprits if culprit.left]
        left += [f"it could not be searched by AMQP 1.0: {why}" for why in refused.values()]
        if not left and not (is_complete and (moved or windows[-1:] == [window])):
            left = ["the search did not come to the end, and is repeated after a minute"]
        return Extraction(len(moved), f"{left[0]}; {BY_HAND}" if left else "")

    def _windows(self, queue: str, window: int, facts: QueueFacts, version: Version) -> list[int]:
        """How many first messages are looked at, one look after the other."""
        if facts.kind != "quorum" or version >= RETURNS_FREE_SINCE or self._names.is_own(queue):
            return [window]
        limit = delivery_limit(facts, version)
        if limit is None or limit >= LEAST_LIMIT:
            return [1, window]
        return [1] if limit >= LOOKED_LIMIT else []

    def _is_time(self) -> bool:
        return self._fruitless < FRUITLESS or time.monotonic() - self._searched_s > RARELY_S

    async def _look(
        self, wanted: Sequence[tuple[str, int]], place: Place, culprits: list[Found], refused: dict[str, str]
    ) -> None:
        """At so many of the first messages of each queue; so many queues at once as a connection has channels for."""
        for at in range(0, len(wanted), CHANNELS - 1):
            await self._look_at(wanted[at : at + CHANNELS - 1], place, culprits, refused)

    async def _look_at(
        self, wanted: Sequence[tuple[str, int]], place: Place, culprits: list[Found], refused: dict[str, str]
    ) -> bool:
        """Return whether all that is wanted was looked at."""
        host, login, tls = place
        connection = await connected(host, login, tls=tls)
        search = Search(connection)
        try:
            await search.through(wanted, self._names.quarantine, self._annotations)
        finally:
            culprits += search.found
            refused |= search.refused
            for culprit in search.found:
                self._record(culprit)
            await connection.close()
        return search.is_complete

    # -- what is told -------------------------------------------------------------------------------------------

    def _annotations(self, culprit: Found) -> dict[str, str]:
        return {
            "x-opt-dlx-router-id": self._letter(culprit).id,
            "x-opt-dlx-router-queue": culprit.queue,
            "x-opt-dlx-router-cause": f"{Cause.MALFORMED}: {_cause(culprit)}",
        }

    def _letter(self, culprit: Found) -> Letter:
        """A stand-in: all that is known is where it was, and how it came there."""
        came = _annotated(culprit.message)
        exchange, key = came.get(b"x-exchange", b""), came.get(b"x-routing-key", b"")
        name = letter_id(self._vhost, culprit.queue, exchange, key, b"", b"", culprit.message)
        return unreadable(name, self._vhost, culprit.queue, Arrival.INBOX, text(exchange), text(key), now_ms())

    def _record(self, culprit: Found) -> None:
        """Counted, logged and told to the journal; what stays where it was is said by readiness."""
        if culprit.left:
            log.warning(
                "letter.unreadable",
                vhost=self._vhost,
                queue=culprit.queue,
                cause=culprit.cause,
                error=culprit.left,
                fate="it stays",
            )
            return
        self._moved += 1
        self._metrics.deliveries[self._vhost, culprit.queue] += 1
        self._metrics.settled[self._vhost, Action.QUARANTINE.value] += 1
        self._metrics.unreadable[self._vhost] += 1
        letter = self._letter(culprit)
        self._once.warn(
            f"{culprit.queue} {culprit.cause}",
            "letter.quarantine",
            vhost=self._vhost,
            queue=culprit.queue,
            cause=_cause(culprit),
            letter=letter.id,
            fate=f"moved to the quarantine queue by AMQP 1.0, as it came: {ADVICE}; told once of each kind",
        )
        if self._journal.is_on:
            self._journal.record(self._event(culprit, letter))

    def _event(self, culprit: Found, letter: Letter) -> bytes:
        ruling = self._event_factory().quarantined(
            letter, f"{Cause.MALFORMED}: {_cause(culprit)}", self._names.quarantine
        )
        now = now_ms()
        return fragments(letter, ruling).line(
            letter.id, now, first_ms=now, last_ms=now, crc32=crc32(culprit.message), size=len(culprit.message)
        )

    def _report(self, suspects: Sequence[str], culprits: Sequence[Found], refused: dict[str, str]) -> None:
        where = f"vhost {self._vhost!r}"
        stays = [
            f"message {culprit.number} of queue {culprit.queue!r}: {_cause(culprit)}; {culprit.left}"
            for culprit in culprits
            if culprit.left
        ]
        moved = [culprit for culprit in culprits if not culprit.left]
        if moved:
            self._fruitless = 0
            self._note_moved(moved)
        else:
            self._fruitless += 1
        if stays:
            self._refusals.crashed(f"{where}: RabbitMQ crashes (541) where it delivers {'; '.join(stays)}")
        elif not moved:
            looked = ", ".join(repr(queue) for queue in suspects if queue not in refused) or "any queue"
            not_read = "".join(f"; {queue} could not be read: {why}" for queue, why in refused.items())
            self._refusals.crashed(
                f"{where}: RabbitMQ crashed (541) while it served this router, and no message at the head of {looked} "
                f"is known to cause that{not_read}; the broker's log says more"
            )

    def _note_moved(self, moved: Sequence[Found]) -> None:
        last, moved_now = moved[-1], number_of(self._moved, "message")
        self._readiness.note(
            f"unreadable {self._vhost}",
            f"vhost {self._vhost!r}: {moved_now} moved to {self._names.quarantine} by AMQP 1.0, the last one "
            f"of queue {last.queue!r}, because RabbitMQ crashes where it hands them to an AMQP 0-9-1 "
            f"client: {last.cause}; {ADVICE}",
        )


def _cause(culprit: Found) -> str:
    return f"no AMQP 0-9-1 client can be given it: {culprit.cause}"


def _annotated(message: bytes) -> dict[bytes, bytes]:
    """The annotations that are text."""
    try:
        for section in sections(message):
            if section.code == ANNOTATIONS and section.value.type == "map":
                return {
                    key.of: value.of
                    for key, value in section.value.of
                    if isinstance(value.of, bytes) and isinstance(key.of, bytes)
                }
    except Amqp10Error:
        pass
    return {}
