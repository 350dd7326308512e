"""Conditions in SQL on the archive's columns, and what they cannot see although there is a column for it."""

import re
from typing import Final

# The journal tells of these only what the policy of the letter reads: journal/privacy.py.
PARTIAL: Final = {"headers": "headers", "body_values": "places of the body"}
_NAMED: Final = re.compile(rf"\b({'|'.join(PARTIAL)})\b", re.IGNORECASE)


def partial(where: str | None) -> tuple[str, ...]:
    """The columns in the condition that hold only a part of what the message had; in the order of PARTIAL."""
    named = {name.lower() for name in _NAMED.findall(where or "")}
    return tuple(name for name in PARTIAL if name in named)


def unseen(where: str | None) -> str:
    """One sentence about them; empty where the condition asks for none."""
    asked = " and ".join(PARTIAL[name] for name in partial(where))
    return asked and (
        f"--where asks for {asked}: the archive has only those that a letter's policy reads (in never-retry, retry-only"
        " or a template of the routing key); letters of other policies look as if they had none:"
        " docs/pipeline-analyses.md"
    )
