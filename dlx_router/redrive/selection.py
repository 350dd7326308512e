"""Filter: the text of a task → what holds of a letter, in the language of policy conditions (CEL)."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from dlx_router.config.language.conditions import ConditionError, Evaluator, condition
from dlx_router.core.condition import ConditionFailed, view
from dlx_router.core.letter import Letter
from dlx_router.core.words import UNKNOWN
from dlx_router.journal.privacy import PLAIN, Rule, redacted
from dlx_router.redrive.task import Kind, Spec, TaskError
from dlx_router.telemetry.wall_clock import wall_ms


def compiled(text: str, rule_of: Callable[[Letter], Rule] = lambda _letter: PLAIN) -> Callable[[Letter], bool]:
    """Return what says whether the filter holds of a letter. TaskError with the position where it is no expression.

    A letter of which it cannot be said (a header compared with a number, say) is one that it does not hold of. What the
    letter's policy redacts (`rule_of`) a filter sees as people do: hidden. TaskError where it costs too much.
    """
    try:
        test = condition(text)
    except ConditionError as error:
        raise TaskError(f"filter, line {error.line}, column {error.column}: {error}") from None
    evaluator = test.holds
    assert isinstance(evaluator, Evaluator)

    def check_cost() -> None:
        if evaluator.slow_ms:
            raise TaskError(
                f"filter: takes {evaluator.slow_ms:.1f} ms for a message, at most 1 ms is possible; compare with fewer "
                "items of lists and shorter texts, or choose letters by group"
            )

    def holds(letter: Letter) -> bool:
        check_cost()
        try:
            return evaluator(redacted(rule_of(letter), view(letter, letter.base_attempts, wall_ms())))
        except ConditionFailed:
            return False
        finally:
            check_cost()

    return holds


_FINER: Final = 1000  # x-death tells whole seconds


class Verdict(StrEnum):
    """What happens to a letter of the queue."""

    TAKE = "take"
    LEAVE = "leave"  # not asked for
    EQUAL = "equal"  # asked for by its id, and a letter that is equal byte for byte goes
    LATER = "later"  # dead since the cutoff, or since this task sent it
    HOMELESS = "homeless"  # nothing says where it failed
    NO_LETTER = "no letter"  # it never died: somebody's living message


class Chooser:
    """`holds(letter)` is the filter, `group_of(letter)` the letter's group; each asked only where the spec needs it.

    A task means no letter twice: what it sent and what came back without a router between, as by the work queue's own
    dead-letter exchange, tells no later death than before, and would be sent for ever.
    """

    def __init__(
        self, task_id: str, spec: Spec, holds: Callable[[Letter], bool], group_of: Callable[[Letter], str]
    ) -> None:
        self._task_id, self._spec, self._holds, self._group_of = task_id, spec, holds, group_of
        self._ids = frozenset(spec.ids)
        self.chosen: set[str] = set()  # ids of which a letter goes: of equal letters that are asked for by id, one does

    def verdict(self, letter: Letter, redrive_id: str | None = None) -> Verdict:
        """Whether the task means this letter. `redrive_id`: what sent it last, as the record on it says."""
        spec = self._spec
        if not is_letter(letter):
            return Verdict.NO_LETTER
        came_back = letter.state is not None and redrive_id == self._task_id  # else the record is another message's
        if came_back or is_later(letter, spec.cutoff_ms):
            return Verdict.LATER
        if not self._is_asked_for(letter):
            return Verdict.LEAVE
        if spec.kind is Kind.REDRIVE and spec.to is None and is_homeless(letter):
            return Verdict.HOMELESS
        if self._ids and spec.kind is not Kind.EXPORT:
            if letter.id in self.chosen:
                return Verdict.EQUAL
            self.chosen.add(letter.id)
        return Verdict.TAKE

    def _is_asked_for(self, letter: Letter) -> bool:
        spec = self._spec
        if self._ids and letter.id not in self._ids:
            return False
        if spec.group and self._group_of(letter) != spec.group:
            return False
        return not spec.filter or self._holds(letter)


def is_letter(letter: Letter) -> bool:
    """Whether it ever died, as far as it says itself: it has our record, about this very content, or deaths in x-death.

    What has neither is somebody's living message, whatever queue it lies in, and no task takes it away. What only
    waited in queues of ours (a delayed exchange's) has not died.
    """
    return letter.state is not None or bool(letter.history)


def is_later(letter: Letter, cutoff_ms: int) -> bool:
    """Whether it died at the cutoff or after. With a record by its time, else by the newest death that x-death tells.

    x-death keeps the first time of a (queue, reason), so a letter without a record may have died later than it says;
    once sent by us it has a record. One without any time is taken to have died before.
    """
    if letter.state is not None:
        return letter.last_death_ms >= cutoff_ms
    return bool(letter.history) and max(death.time_s for death in letter.history) * _FINER >= cutoff_ms


def is_homeless(letter: Letter) -> bool:
    """Whether nothing tells a queue to go back to."""
    return letter.reason == UNKNOWN and not letter.history
