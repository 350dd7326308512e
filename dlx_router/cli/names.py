"""Names that a shell completes: queues, groups, tasks, letters, policies, as the running router knows them.

Whatever is wrong, nothing is offered and nothing is said. A name of other characters than those of SAFE is never
offered: what a shell is given here it may evaluate, and anybody may name a queue.
"""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from typing import Any, Final

import typer

SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,/@%+=-]*", re.ASCII)
WITHIN_S: Final = 1.0
MOST: Final = 200
Offered = list[tuple[str, str]]


def failed_queues(ctx: typer.Context, incomplete: str) -> Offered:
    """Queues in which letters failed."""
    rows = _asked(ctx, "/queues").get("failed", ())
    return _offered(incomplete, ((row["failed_queue"], _counts(row["states"])) for row in rows))


def dead_letter_queues(ctx: typer.Context, incomplete: str) -> Offered:
    """Queues in which letters lie."""
    rows = _asked(ctx, "/queues").get("lying", ())
    names = ((row["queue"] or ("" if row["exchange"] else row["routing_key"]), row["indexed"]) for row in rows)
    return _offered(incomplete, ((name, f"{count} lie there") for name, count in names))


def groups(ctx: typer.Context, incomplete: str) -> Offered:
    """Groups, those that had a death last first."""
    rows = _asked(ctx, "/groups", limit=MOST).get("groups", ())
    return _offered(incomplete, ((row["id"], f"{row['state']}, {row['lying']} lie there") for row in rows))


def letters(ctx: typer.Context, incomplete: str) -> Offered:
    """The newest letters."""
    rows = _asked(ctx, "/letters", limit=MOST).get("letters", ())
    return _offered(incomplete, ((row["id"], row["state"]) for row in rows))


def tasks(ctx: typer.Context, incomplete: str) -> Offered:
    """Tasks, the newest first."""
    rows = _asked(ctx, "/tasks", vhost=ctx.params.get("vhost")).get("tasks", ())
    return _offered(incomplete, ((row["id"], f"{row['spec']['kind']}, {row['state']}") for row in rows))


def policies(ctx: typer.Context, incomplete: str) -> Offered:
    """Policies in force."""
    rows = _asked(ctx, "/policies").get("policies", ())
    return _offered(incomplete, ((row["name"], "") for row in rows))


def vhosts(ctx: typer.Context, incomplete: str) -> Offered:
    """Vhosts that the router serves."""
    return _offered(incomplete, ((name, "") for name in _asked(ctx, "/status").get("vhosts", ())))


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{int(count)} {state}" for state, count in sorted(states.items()) if SAFE.fullmatch(state))


def _offered(incomplete: str, pairs: Iterable[tuple[Any, str]]) -> Offered:
    return [*dict(_safe(incomplete, pairs)).items()]


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
            if path == "/tasks" and query["vhost"] is None:
                query["vhost"] = api.settings.vhost_list()[0]
            return api.look(path, **query)[0] or {}
    except (typer.Exit, ValueError, LookupError):
        return {}
