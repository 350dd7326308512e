"""The command line that does what a button does, to be copied into a shell or a runbook."""

import shlex
from collections.abc import Mapping
from typing import Any


def command(*words: str, operand: str = "", **options: object) -> str:
    """`dlx-router WORDS --option value … OPERAND`; what is None, "", 0 or False is left out, a list is repeated.

    A name that begins with a dash stays a name.
    """
    argv = ["dlx-router", *words]
    for name, value in options.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else (value,):
            if item is True:
                argv.append(option)
            elif item not in (None, "", 0, False):
                argv += [f"{option}={item}"] if str(item).startswith("-") else [option, str(item)]
    if operand:
        argv += ["--", operand] if operand.startswith("-") else [operand]
    return shlex.join(argv)


def task_command(spec: Mapping[str, Any]) -> str:
    """What would start a task with this spec."""
    to, canary = spec.get("to") or {}, spec.get("canary") or {}
    what = {
        "id": list(spec.get("ids") or ()),
        "group": spec.get("group"),
        "filter": spec.get("filter"),
        "limit": spec.get("limit"),
        "vhost": spec["vhost"] if spec.get("vhost", "/") != "/" else None,
    }
    how: dict[str, object] = {"rate": f"{spec.get('rate') or 0:g}", "dry_run": spec.get("dry_run")}
    how |= {"not_a_dead_letter_queue": spec.get("not_a_dead_letter_queue")}
    kind = spec.get("kind", "redrive")
    if kind == "discard":
        return command("discard", operand=spec["queue"], **what, **how)
    if kind == "park":
        return command("redrive", "park", operand=spec["queue"], **what, **how)
    where: dict[str, object] = {"to_queue": to.get("routing_key")}
    if to.get("exchange"):
        where = {"to_exchange": to["exchange"], "routing_key": to.get("routing_key")}
    if canary:
        how |= {"canary": canary["first"], "watch": f"{canary['watch_s']:g}"}
        how |= {"max_dead": f"{canary['max_dead_percent']:g}"}
    return command("redrive", "start", operand=spec["queue"], **what, **where, **how)
