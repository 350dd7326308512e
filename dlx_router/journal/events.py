"""Events: a decision and all that it looked at → one line of JSON. Pure: no clock, no I/O.

What the letters of one standing order share is encoded once, into `Fragments`; a letter adds its id, times, properties
and digest. There is one way only: a single letter makes its fragments (mostly from a cache) and uses them once.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.letter import HISTORIES, Arrival, Declared, History, Letter
from dlx_router.core.words import UNKNOWN, Action
from dlx_router.journal.encoding import DEATHS, Deaths, deaths, encode, members, properties, string
from dlx_router.journal.entry import Entry, Shared
from dlx_router.journal.fields import VERSION
from dlx_router.wire.properties import Properties

KIND_OF: Final = {
    Action.RETRY: "retried",
    Action.DEAD_LETTER: "dead_lettered",
    Action.PARK: "parked",
    Action.QUARANTINE: "quarantined",
    Action.FORWARD: "forwarded",
    Action.DISCARD: "discarded",
    Action.HOLD: "held",
    Action.RELEASE: "released",
    Action.RETIRE: "retired",
}
ROW_SERIAL: Final = '"serial":'
ROW_END: Final = "}]\n"
NO_BODY: Final = '"body_mode":"none"'
DETAIL_CHARS: Final = 500
_SHARED_DEATHS: Final = 8  # longer histories are one letter's own and too large to be kept
POSSIBLE_COPY: Final = '"possible_copy":true,'
_START: Final = f'{{"v":{VERSION},"event_id":"'


class Ruling(NamedTuple):
    """What was decided, by whom and by which rules; equal for all letters of a standing order.

    `exchange` None: no copy was made. `attempts` counts this death; `rung_ms` 0: no rung; `refused`: the
    target that would not have it. `observed`: nothing of it was done.
    """

    kind: str
    attempts: int
    router_id: str
    policy: str = ""
    revision: str = ""
    cause: str = ""
    exchange: str | None = None
    routing_key: str = ""
    rung_ms: int = 0
    refused: str = ""
    breaker: str = ""
    redrive_id: str = ""
    detail: str = ""
    observed: bool = False


class Fragments(NamedTuple):
    """What the events of one standing order share, encoded: the digest of the step, and members, a comma behind each.

    `letter`: those that are a letter's own, and known beforehand.
    """

    step: str
    ruled: str
    letter: str
    asked: str
    deaths: Deaths

    def line(  # noqa: PLR0913 - what is a letter's own
        self,
        letter_id: str,
        ts_ms: int,
        *,
        first_ms: int,
        last_ms: int,
        crc32: int,
        size: int,
        props: Properties | None = None,
        due_ms: int | None = None,
        draw: float | None = None,
        serial: int | None = None,
        possible_copy: bool = False,
        extra: str = NO_BODY,
    ) -> bytes:
        """One whole line, its end included. `ts_ms`, `draw`: what decide() was given; `extra`: as `disclosed`."""
        if not letter_id.isalnum():
            letter_id = string(letter_id)[1:-1]
        due = "" if due_ms is None else f'"due_ms":{due_ms},'
        if draw is not None:
            due = f'"draw":{draw!r},{due}'
        if serial is not None:
            due = f'{POSSIBLE_COPY if possible_copy else ""}"serial":{serial},{due}'
        own, rest = ("", "") if props is None else properties(props)
        prop_text = f'"props":{{{own}{"," if own and rest else ""}{rest}}},' if own or rest else ""
        return (
            f'{_START}{letter_id}-{self.step}","id":"{letter_id}",{self.ruled}{self.letter}{self.asked}'
            f'{self.deaths.told}"ts_ms":{ts_ms},{due}"first_death_ms":{first_ms},'
            f'"last_death_ms":{last_ms},{prop_text}"digest":{{"crc32":{crc32},"size":{size}}},{extra}}}\n'
        ).encode()

    def entry(  # noqa: PLR0913 - as `line`
        self,
        letter_id: str,
        ts_ms: int,
        *,
        first_ms: int,
        last_ms: int,
        crc32: int,
        size: int,
        props: Properties | None = None,
        due_ms: int | None = None,
        draw: float | None = None,
        serial: int | None = None,
        possible_copy: bool = False,
        extra: str = NO_BODY,
    ) -> Entry:
        """The same event, for a message in format 2: what it shares with others, and its row. See docs/journal.md."""
        step, ruled, more, asked, (_, common, times) = self
        own, rest = ("", "") if props is None else properties(props)
        if draw is not None:
            more = f'{more}"draw":{draw!r},'
        if extra is not NO_BODY:
            more = f"{more}{extra},"
        if serial is not None:
            more = f'{more}{POSSIBLE_COPY if possible_copy else ""}"serial":{serial},'
        due = "null" if due_ms is None else due_ms - ts_ms
        end = f",{{{more[:-1]}}}" if more else ""
        return (ruled, asked, common, rest), (
            f',{string(letter_id)},"{step}",{ts_ms},{due},{ts_ms - first_ms},{ts_ms - last_ms},{crc32},{size},{times}'
            f",{{{own}}}{end}]\n"
        )

    def rows(self, ts_ms: int, *, first_ms: int, last_ms: int, due_ms: int | None) -> tuple[str, str, str, str]:
        """As `entry`, of letters that differ in id, content and their own properties: before, between and behind those.

        The order is id, checksum and size with a comma between, the properties, `POSSIBLE_COPY` where it is one, and
        `ROW_SERIAL`, the serial, `ROW_END`.
        """
        step, _, more, _, (_, _, times) = self
        due = "null" if due_ms is None else due_ms - ts_ms
        return (
            ',"',
            f'","{step}",{ts_ms},{due},{ts_ms - first_ms},{ts_ms - last_ms},',
            f",{times},{{",
            f"}},{{{more}",
        )

    def shared(self, props: Properties) -> Shared:
        """What `entry` says that events of letters with such properties share."""
        return self.ruled, self.asked, self.deaths.common, properties(props)[1]


def fragments(letter: Letter, ruling: Ruling) -> Fragments:
    """The fragments of this decision. Everything that decide() reads of a letter is in them or in the line."""
    history = letter.history
    cached = len(history) <= _SHARED_DEATHS and not ruling.detail
    decision = (
        f"observed {ruling.kind}" if ruling.observed else ruling.kind,  # what is done later is an event of its own
        letter.failed_queue,
        ruling.revision,
        ruling.attempts,
        letter.redrives,
        letter.tries,
        ruling.redrive_id,
        history,
    )
    step = _STEPS[decision] if cached else _step(*decision)
    ruled_by = (
        ruling,
        letter.vhost,
        letter.source,
        letter.arrival,
        letter.exchange,
        letter.routing_key,
        letter.failed_queue,
        letter.reason,
        letter.base_attempts,
        letter.redrives,
        letter.tries,
        letter.state,
        letter.known_before,
        letter.rejected_since,
        letter.cause,
    )
    ruled = _RULED[ruled_by] if cached else _ruled(*ruled_by)
    died = history, letter.fresh, letter.first
    death_members = DEATHS[died] if cached else deaths(*died)
    parent = "" if letter.parent is None else f'"parent":{string(letter.parent)},'
    if letter.since_ms:
        parent = f'{parent}"since_ms":{letter.since_ms},'
    asked = "" if letter.declared is None else f'"declared":{encode(_asked(letter.declared))},'
    return Fragments(step, ruled, parent, asked, death_members)


def _asked(declared: Declared) -> dict[str, Any]:
    wishes = {"never": declared.never or None, "retry_after_ms": declared.retry_after_ms, "tag": declared.tag}
    return {name: value for name, value in wishes.items() if value is not None}


def unreadable(  # noqa: PLR0913, PLR0917 - all that is known of it
    letter_id: str, vhost: str, source: str, arrival: Arrival, exchange: str, routing_key: str, now_ms: int
) -> Letter:
    """A stand-in for a delivery that is no letter: nothing is known but where it came from."""
    return Letter(
        id=letter_id,
        vhost=vhost,
        source=source,
        arrival=arrival,
        exchange=exchange,
        routing_key=routing_key,
        history=(),
        first=None,
        failed_queue=source,
        reason=UNKNOWN,
        fresh=(),
        base_attempts=0,
        redrives=0,
        tries=0,
        first_death_ms=now_ms,
        last_death_ms=now_ms,
    )


def gap(router_id: str, vhost: str, *, events: int, from_ms: int, to_ms: int) -> bytes:
    """The line that stands where `events` of this router are missing."""
    digest = blake2b(f"{router_id}\0{vhost}\0{events}\0{from_ms}\0{to_ms}".encode(errors="surrogateescape"))
    document = {
        "v": VERSION,
        "event_id": f"gap-{digest.hexdigest()[:32]}",
        "kind": "gap",
        "router_id": router_id,
        "vhost": vhost,
        "events": events,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "ts_ms": to_ms,
    }
    return f"{encode(document)}\n".encode()


def _step(  # noqa: PLR0913, PLR0917 - what makes a decision this one and no other
    kind: str,
    failed_queue: str,
    revision: str,
    attempts: int,
    redrives: int,
    tries: int,
    redrive_id: str,
    history: History,
) -> str:
    """Sixteen hex digits. No clock and no chance is in it, and nothing that another router would say otherwise."""
    text = encode([kind, failed_queue, revision, attempts, redrives, tries, redrive_id, history])
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _ruled(  # noqa: PLR0913, PLR0917 - the fields that letters of one queue share
    ruling: Ruling,
    vhost: str,
    source: str,
    arrival: str,
    exchange: str,
    routing_key: str,
    failed_queue: str,
    reason: str,
    base_attempts: int,
    redrives: int,
    tries: int,
    state: str | None,
    known_before: bool,  # noqa: FBT001 - fields that letters of one queue share, all in one key
    rejected_since: bool,  # noqa: FBT001 - fields that letters of one queue share, all in one key
    said_cause: str | None,
) -> str:
    shared: dict[str, Any] = {
        "kind": ruling.kind,
        "router_id": ruling.router_id,
        "vhost": vhost,
        "source": source,
        "arrival": arrival,
        "exchange": exchange,
        "routing_key": routing_key,
        "failed_queue": failed_queue,
        "reason": reason,
        "attempts": ruling.attempts,
        "base_attempts": base_attempts,
        "redrives": redrives,
        "tries": tries,
        "revision": ruling.revision,
    }
    shared |= {name: value for name in _OPTIONAL if (value := getattr(ruling, name))}
    if ruling.detail:
        shared["detail"] = ruling.detail[:DETAIL_CHARS]
    if ruling.exchange is not None:
        shared["target"] = {"exchange": ruling.exchange, "routing_key": ruling.routing_key}
    if state is not None:
        shared["state"] = state
    shared |= {"said_cause": said_cause} if said_cause else {}
    shared |= {"known_before": True} if known_before else {}
    shared |= {"rejected_since": True} if rejected_since else {}
    return members(shared)


_OPTIONAL: Final = ("cause", "policy", "rung_ms", "refused", "breaker", "redrive_id", "observed")

_STEPS: Final = Remembered[tuple[Any, ...], str](lambda key: _step(*key), most=HISTORIES, most_bytes=4 * MIB)
_RULED: Final = Remembered[tuple[Any, ...], str](lambda key: _ruled(*key), most=4096, most_bytes=4 * MIB)
