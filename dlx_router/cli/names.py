"""Names that a shell completes: queues, groups, tasks, letters, policies, as the running router knows them.

Whatever is wrong, nothing is offered and nothing is said. A name of other characters than those of SAFE is never
offered: what a shell is given here it may evaluate, and anybody may name a queue.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from typing import Any, Final

import typer

SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,/@%+=-]*", re.ASCII)
WITHIN_S: Final = 1.0
MOST: Final = 200
Offered = list[tuple[str, str]]
Completion = Callable[[typer.Context, str], Offered]


def _names(path: str, key: str, pair: Callable[[Any], tuple[Any, str]], **query: Any) -> Completion:  # noqa: ANN401 - parameters of the API
    """Return what completes names of a list of the API; `pair` gives the name of an item and a note."""

    def complete(ctx: typer.Context, incomplete: str) -> Offered:
        rows = _asked(ctx, path, **query).get(key, ())
        return [*dict(_safe(incomplete, map(pair, rows))).items()]

    return complete


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{int(count)} {state}" for state, count in sorted(states.items()) if SAFE.fullmatch(state))


failed_queues = _names("/queues", "failed", lambda row: (row["failed_queue"], _counts(row["states"])))
dead_letter_queues = _names(
    "/queues",
    "lying",
    lambda row: (row["queue"] or ("" if row["exchange"] else row["routing_key"]), f"{row['indexed']} lie there"),
)
groups = _names("/groups", "groups", lambda row: (row["id"], f"{row['state']}, {row['lying']} lie there"), limit=MOST)
letters = _names("/letters", "letters", lambda row: (row["id"], row["state"]), limit=MOST)
tasks = _names("/tasks", "tasks", lambda row: (row["id"], f"{row['spec']['kind']}, {row['state']}"))
policies = _names("/policies", "policies", lambda row: (row["name"], ""))
vhosts = _names("/status", "vhosts", lambda name: (name, ""))


def _safe(incomplete: str, pairs: Iterable[tuple[Any, str]]) -> Iterator[tuple[str, str]]:
    try:
        for name, note in pairs:
            if isinstance(name, str) and name.startswith(incomplete) and SAFE.fullmatch(name):
                yield name, note
    except (KeyError, TypeError, ValueError, AttributeError):
        return  # a router of another version, or none


def _asked(ctx: typer.Context, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - parameters of the API
    from dlx_router.cli.api import Api  # noqa: PLC0415 - who completes a command's name does not wait for it

    try:
        with redirect_stderr(io.StringIO()):
            api = Api(ctx.params.get("api_url") or ctx.params.get("url"), timeout_s=WITHIN_S)
            if path == "/tasks":
                query["vhost"] = ctx.params.get("vhost") or api.settings.vhost_list()[0]
            return api.look(path, **query)[0] or {}
    except (typer.Exit, ValueError, LookupError):
        return {}
