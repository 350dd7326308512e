"""The rules behind the steps of a letter: file and line of each key that decided, while that revision is in force."""

from collections.abc import Iterable
from typing import Any

from dlx_router.admin.api.context import Context
from dlx_router.config.language.keys import DEFINITION
from dlx_router.config.language.value_text import KeyRow, key_row
from dlx_router.core.deciding_keys import deciding_keys
from dlx_router.service.vhost.runner import VhostRunner


def name_rules(context: Context, letters: Iterable[dict[str, Any]]) -> None:
    """Put `rules` into each step. Of a step that another revision decided nothing can be said: it has none."""
    for letter in letters:
        attendant = context.attendants.get(letter["vhost"])
        for step in letter["journey"]:
            rows = () if attendant is None else _rules(attendant, letter["failed_queue"], step)
            step["rules"] = [row._asdict() for row in rows]


def _rules(attendant: VhostRunner, queue: str, step: dict[str, Any]) -> Iterable[KeyRow]:
    policies = attendant.policies
    if step["policy"] is None or step["redrive_id"] is not None or step["revision"] != policies.revision:
        return ()
    policy = attendant.policy_for(queue, step["reason"])
    if policy is None or policy.policy != step["policy"]:
        return ()
    keys = deciding_keys(step["kind"], step["cause"], step["reason"], policy)
    return [key_row(DEFINITION[key], policy.settings.get(key)) for key in keys]
