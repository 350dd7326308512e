"""Filter: the text of a task → what holds of a letter, in the language of policy conditions (CEL)."""

from collections.abc import Callable

from dlx_router.config.language.conditions import ConditionError, Evaluator, condition
from dlx_router.core.condition import ConditionFailed, view
from dlx_router.core.letter import Letter
from dlx_router.journal.privacy import PLAIN, Rule, redacted
from dlx_router.redrive.task import TaskError
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
