"""The breaker of one queue: while everything dies there, letters wait without using attempts.

A state machine without a clock: every call says what time it is. closed → open when `deaths` happened `within` a time;
open → half-open when a probe was let go and did not come back for `probe-every`; half-open → closed when the ramp is
over. It moves only when it is asked, so no timer can be forgotten. See docs/policies.md.
"""

from collections import deque
from enum import StrEnum
from typing import Final, NamedTuple

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.limits import Outage

LONGEST_WAIT_MS: Final = 300_000
RAMP_MS: Final = 10_000
RAMP_STEP_MS: Final = 1_000
MAX_TURNS: Final = 512  # letters that wait for their turn to be a probe: one each pause, for five minutes
FEW: Final = 3  # deaths on the ramp that say nothing yet: among many letters some are bad by themselves


class Breaker(StrEnum):
    """What the breaker says of a letter; also its state, but for PROBE."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    PROBE = "probe"  # open, and this letter is the one that tries

    @staticmethod
    def badness(state: str) -> int:
        """0 closed, 1 half-open, 2 open."""
        return {Breaker.CLOSED: 0, Breaker.HALF_OPEN: 1}.get(Breaker(state), 2)


class Verdict(NamedTuple):
    """`wait_ms` None: the letter is judged as usual; else it is held so long."""

    state: Breaker
    wait_ms: int | None = None


CLOSED: Final = Verdict(Breaker.CLOSED)


class QueueBreaker:
    """The breaker of one failed queue. Times in ms on one clock; one that is set back makes it forget, not hang."""

    def __init__(self, rule: Outage) -> None:
        self.rule = rule
        self._forget()

    def _forget(self) -> None:
        self._state = Breaker.CLOSED
        self._deaths: deque[int] = deque(maxlen=self.rule.deaths)
        self._now_ms = 0
        self._asked_ms = 0
        self._since_ms = 0  # when this state began
        self._next_ms = 0  # when a probe is due
        self._slots_ms = 0  # until then each probe has its letter
        self._turns: set[str] = set()  # those letters
        self._probe: str | None = None
        self._last_probe: str | None = None
        self._probed_ms = 0
        self._died = 0  # since the probe
        self._released: set[str] = set()
        self._failed = 0  # of those that were released

    def state(self, now_ms: int) -> Breaker:
        """The state now."""
        self._look(now_ms)
        return self._state

    def ask(self, letter_id: str, now_ms: int, *, deaths: int, tries: int) -> Verdict:
        """What to do with a letter that died `deaths` times just now, or (0) is back from its hold number `tries`."""
        self._look(now_ms)
        self._asked_ms = now_ms
        if deaths:
            self._count(letter_id, now_ms, deaths)
        if self._state is Breaker.OPEN:
            return self._while_open(letter_id, now_ms, tries, died=bool(deaths))
        if self._state is Breaker.HALF_OPEN and not deaths:
            return self._on_the_ramp(letter_id, now_ms)
        return Verdict(self._state)

    # -- what happened ------------------------------------------------------------------------------------------

    def _look(self, now_ms: int) -> None:
        if self._holds_nobody(now_ms) or now_ms < self._now_ms - RAMP_MS:  # or the clock was set back
            self._forget()
        self._now_ms = max(now_ms, self._now_ms)
        if self._state is Breaker.OPEN and self._probe is not None:
            self._probing(now_ms)
        elif self._state is Breaker.HALF_OPEN and now_ms - self._since_ms >= RAMP_MS:
            self._begin(Breaker.CLOSED, now_ms)

    def _holds_nobody(self, now_ms: int) -> bool:
        """Whether all that it held would have come back long since: its rule may be in force no more."""
        longest = max(LONGEST_WAIT_MS, self.rule.probe_ms)
        return self._state is Breaker.OPEN and now_ms - self._asked_ms > 2 * longest

    def _probing(self, now_ms: int) -> None:
        """A probe has survived when it did not come back, and the others do not die as they did."""
        elapsed = now_ms - self._probed_ms
        if elapsed < self.rule.probe_ms - self._tolerance_ms:
            return
        if self._died * self.rule.within_ms < self.rule.deaths * elapsed:
            survivor = {self._probe} if self._probe is not None else set()
            self._begin(Breaker.HALF_OPEN, now_ms)
            self._released = survivor
        elif elapsed > LONGEST_WAIT_MS:
            self._probe = None  # it is stuck behind others: another may try

    def _count(self, letter_id: str, now_ms: int, deaths: int) -> None:
        for _ in range(min(deaths, self.rule.deaths)):
            self._deaths.append(now_ms)
        if self._state is Breaker.OPEN:
            if letter_id == self._probe:
                self._probe = None
            else:
                self._died += deaths
            return
        if letter_id in self._released:
            self._released.discard(letter_id)
            self._failed += 1
        relapse = self._failed >= FEW and self._failed > len(self._released)
        many = len(self._deaths) == self.rule.deaths and now_ms - self._deaths[0] <= self.rule.within_ms
        if many or relapse:
            self._begin(Breaker.OPEN, now_ms)

    def _begin(self, state: Breaker, now_ms: int) -> None:
        self._state, self._since_ms = state, now_ms
        self._next_ms, self._slots_ms = now_ms + self.rule.probe_ms, now_ms
        self._probe, self._died, self._failed = None, 0, 0
        self._released, self._turns = set(), set()
        self._deaths.clear()

    # -- what to do ---------------------------------------------------------------------------------------------

    @property
    def _tolerance_ms(self) -> int:
        """Waits end some milliseconds late, each by its own; a tenth of the pause is no second probe."""
        return self.rule.probe_ms // 10

    def _while_open(self, letter_id: str, now_ms: int, tries: int, *, died: bool) -> Verdict:
        its_turn = letter_id in self._turns
        self._turns.discard(letter_id)
        others = letter_id == self._last_probe and not its_turn and self._slots_ms >= now_ms - self._tolerance_ms
        if died or others or self._probe is not None or now_ms < self._next_ms - self._tolerance_ms:
            return Verdict(Breaker.OPEN, self._wait_ms(letter_id, now_ms, tries))
        self._probe = self._last_probe = letter_id
        self._probed_ms, self._next_ms, self._died = now_ms, now_ms + self.rule.probe_ms, 0
        return Verdict(Breaker.PROBE)

    def _wait_ms(self, letter_id: str, now_ms: int, tries: int) -> int:
        """Doubling; but as long as probes have no letter, this one comes back when the next of them is due."""
        pause = self.rule.probe_ms
        wait = max(min(pause << min(tries, 30), LONGEST_WAIT_MS), pause)
        slot = max(self._slots_ms, now_ms) + pause
        if slot > now_ms + wait:
            return wait
        self._slots_ms = slot
        if len(self._turns) < MAX_TURNS:  # some may never come back
            self._turns.add(letter_id)
        return slot - now_ms

    def _on_the_ramp(self, letter_id: str, now_ms: int) -> Verdict:
        """One letter in the first second, two by the second, four by the third …; the others wait a second more."""
        if len(self._released) + self._failed < 1 << ((now_ms - self._since_ms) // RAMP_STEP_MS + 1):
            self._released.add(letter_id)
            return Verdict(Breaker.HALF_OPEN)
        return Verdict(Breaker.HALF_OPEN, RAMP_STEP_MS)


class Breakers:
    """The breakers of one vhost, one for each queue and rule: the reasons of a queue may have different ones.

    Those that are closed are forgotten when there are too many, then the oldest: queues that vanished never get well.
    """

    def __init__(self, most: int = 10_000, most_bytes: int = 8 * MIB) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._of: Bounded[tuple[str, Outage], QueueBreaker] = Bounded(most=most, most_bytes=most_bytes, weigh=_bytes)
        self._new = 0  # since it was last looked who is well

    def of(self, queue: str, rule: Outage, now_ms: int) -> QueueBreaker:
        """The breaker of a queue by this rule."""
        if (known := self._of.get((queue, rule))) is not None:
            return known
        self._new += 1
        is_full = len(self._of) >= self._most or self._of.held_bytes >= self._most_bytes * 7 // 8
        if is_full and self._new > len(self._of) // 8:  # seldom, because it looks at all
            self._new = 0
            for key in [key for key, breaker in self._of.items() if breaker.state(now_ms) is Breaker.CLOSED]:
                self._of.forget(key)
        made = QueueBreaker(rule)
        self._of[queue, rule] = made
        return made

    def states(self, now_ms: int) -> dict[str, Breaker]:
        """Each queue's state: the worst of its breakers."""
        worst: dict[str, Breaker] = {}
        for (queue, _), breaker in self._of.items():
            worst[queue] = max(worst.get(queue, Breaker.CLOSED), breaker.state(now_ms), key=Breaker.badness)
        return worst


def _bytes(breaker: QueueBreaker) -> int:
    return 2048 + 40 * breaker.rule.deaths  # of which each is remembered with its time
