"""Filter: the text of a task → what holds of a letter, in the language of policy conditions (CEL)."""

from collections.abc import Callable

from dlx_router.config.language.conditions import ConditionError, condition
from dlx_router.core.condition import ConditionFailed, view
from dlx_router.core.letter import Letter
from dlx_router.redrive.task import TaskError
from dlx_router.telemetry.wall_clock import wall_ms


def compiled(text: str) -> Callable[[Letter], bool]:
    """Whether the filter holds of a letter. TaskError with the position where it is no expression.

    A letter of which it cannot be said (a header compared with a number, say) is one that it does not hold of.
    """
    try:
        test = condition(text)
    except ConditionError as error:
        raise TaskError(f"filter, line {error.line}, column {error.column}: {error}") from None

    def holds(letter: Letter) -> bool:
        try:
            return test.holds(view(letter, letter.base_attempts, wall_ms()))
        except ConditionFailed:
            return False

    return holds
