"""What a user of the broker is for. A module of its own: the commands need it before anything else is imported."""

from enum import StrEnum
from typing import Final

POLICYMAKER: Final = "policymaker"


class Purpose(StrEnum):
    """What the user is for."""

    RUN = "run"
    OBSERVE = "observe"
    PLAN = "plan"
    APPLY = "apply"
    DESTROY = "destroy"

    @property
    def tag(self) -> str:
        """The tag without which the management API refuses; "" where it is not asked, or only read."""
        return POLICYMAKER if self in {Purpose.PLAN, Purpose.APPLY, Purpose.DESTROY} else ""
