"""Imports: letters that lie in an existing dead-letter queue become known to the index, by the journal.

Each is told as an audit `letters.import`, so that it is known again when the index is made anew.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.topology import TopologyError
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.index.store import IMPORT
from dlx_router.journal import privacy
from dlx_router.journal.audit import AuditError, audit
from dlx_router.journal.events import Ruling
from dlx_router.service.dispatch.events import letter_line
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.decoder import ANY_EXCHANGE, Malformed, Place
from dlx_router.service.redrive.preview import PeekError, QueueKind, peek
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.wire import frames

Where = Callable[[str], tuple[Sequence[Host], Login, Tls | None]]


class Importer:
    """Reads one queue of one vhost."""

    def __init__(self, where: Where, names: Names, router_id: str) -> None:
        self._where, self._names, self._router_id = where, names, router_id

    async def lines(
        self, attendant: VhostRunner, queue: str, kind: QueueKind, *, limit: int, actor: str
    ) -> tuple[list[bytes], int, int]:
        """The audit lines, how many letters were read, and how many of them could not be. PeekError, ReadRefused."""
        if attendant.topology is None:
            raise PeekError(attendant.not_leading())
        try:
            facts = await attendant.reads.admit(attendant.topology, queue)
        except TopologyError as error:
            raise PeekError(str(error)) from None
        hosts, login, tls = self._where(attendant.vhost)
        lines: list[bytes] = []
        equal = Counter[tuple[str, str]]()
        place = Place(  # its own letters keep their ids; nothing is done by what they tell
            attendant.vhost, queue, Arrival.INBOX, self._names, attendant.key, dead_letter_exchanges=ANY_EXCHANGE
        )

        def keep(delivery: frames.Delivery) -> None:
            with contextlib.suppress(Malformed, AuditError, ValueError):
                lines.append(self._line(delivery, place, actor, attendant, equal))

        where = hosts[0], login, tls
        read = await peek(where, queue, kind, attendant.reads, facts, limit=limit, keep=keep)
        return lines, read, read - len(lines)

    def _line(
        self,
        delivery: frames.Delivery,
        place: Place,
        actor: str,
        attendant: VhostRunner,
        equal: Counter[tuple[str, str]],
    ) -> bytes:
        """The audit line. `equal`: how many letters that no router has handled came before it, by id and queue."""
        letter, envelope = decoder.read(delivery, place)
        if letter.serial == place.serials + delivery.tag:
            name = letter.id, letter.failed_queue
            letter = replace(letter, serial=equal[name], possible_copy=False)
            equal[name] += 1
        now = wall_ms()
        attempts = sum(death.times for death in letter.history if death.queue == letter.failed_queue)
        ruling = Ruling("dead_lettered", attempts, self._router_id, exchange="", routing_key=place.source)
        rule = privacy.rule_of(attendant.policy_of(letter))
        extra = privacy.disclosed(
            rule, "dead_lettered", headers=envelope.props.headers, body=delivery.body, error=letter.error
        )
        line = letter_line(letter, envelope, ruling, rule, ts_ms=letter.last_death_ms or now, extra=extra)
        event: dict[str, Any] = json.loads(line)
        event.pop("event_id")
        details = {"queue": place.source, "letter": event}
        return audit(self._router_id, place.vhost, actor=actor, action=IMPORT, details=details, ts_ms=now)
