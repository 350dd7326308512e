"""The command line that does what a button does, to be copied into a shell or a runbook."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Spec = Mapping[str, Any]
KNOWN: Final = "not_a_dead_letter_queue"
_REDRIVES_ALONE: Final = ("to", "canary")  # what no other command has an option for


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


def number(value: float) -> str:
    """The very number, in as few digits as that takes; "0" stands, which a command's own default may not be."""
    return repr(value).removesuffix(".0")


def task_command(spec: Spec) -> str:
    """What would start a task with this spec; "" where no command does: none is shown rather than a similar one."""
    make = _edit if spec.get("edit") else _BY_KIND.get(spec.get("kind") or "redrive")
    return make(spec) if make is not None else ""


def _redrive(spec: Spec) -> str:
    to, canary, how = spec.get("to"), spec.get("canary"), _how(spec)
    if to and not any(to.values()):
        return ""
    if canary:
        how |= {"canary": canary["first"], "watch": number(canary["watch_s"])}
        how |= {"max_dead": number(canary["max_dead_percent"])}
    return command("redrive", "start", operand=spec["queue"], **_which(spec), **_where(to or {}), **how)


def _settling(*words: str) -> Callable[[Spec], str]:
    """Of `discard` and `redrive park`, which have the same options."""

    def make(spec: Spec) -> str:
        if _has(spec, _REDRIVES_ALONE):
            return ""
        return command(*words, operand=spec["queue"], **_which(spec), **_how(spec))

    return make


def _export(spec: Spec) -> str:
    """At which pace it is done says nothing of the letters."""
    if _has(spec, ("to", "dry_run")):
        return ""
    options = {"from": spec["queue"], **_which(spec), KNOWN: spec.get(KNOWN)}
    return command("letters", "export", **options)


def _edit(spec: Spec) -> str:
    """With places to fill in: what a letter was changed to stands in no task."""
    ids: Sequence[str] = spec.get("ids") or ()
    to, edited = spec.get("to") or {}, spec["edit"]
    if spec.get("kind", "redrive") != "redrive" or len(ids) != 1 or to.get("exchange"):
        return ""
    options = {
        "queue": spec["queue"],
        "vhost": _vhost(spec),
        "to_queue": to.get("routing_key"),
        "body": "FILE" if edited.get("body_bytes") is not None else None,
        "header": [f"{name}=VALUE" for name in edited.get("headers") or ()],
        KNOWN: spec.get(KNOWN),
    }
    return command("edit", operand=ids[0], **options)


_BY_KIND: Final[Mapping[str, Callable[[Spec], str]]] = {
    "redrive": _redrive,
    "discard": _settling("discard"),
    "park": _settling("redrive", "park"),
    "export": _export,
}


def _which(spec: Spec) -> dict[str, Any]:
    """Which letters are meant."""
    narrowed = {name: spec.get(name) for name in ("group", "filter", "limit")}
    return {"id": list(spec.get("ids") or ()), **narrowed, "vhost": _vhost(spec)}


def _where(to: Mapping[str, Any]) -> dict[str, Any]:
    if to.get("exchange"):
        return {"to_exchange": to["exchange"], "routing_key": to.get("routing_key")}
    return {"to_queue": to.get("routing_key")}


def _how(spec: Spec) -> dict[str, Any]:
    return {"rate": number(spec.get("rate") or 0), "dry_run": spec.get("dry_run"), KNOWN: spec.get(KNOWN)}


def _has(spec: Spec, names: Iterable[str]) -> bool:
    return any(spec.get(name) for name in names)


def _vhost(spec: Spec) -> str | None:
    vhost: str = spec.get("vhost", "/")
    return vhost if vhost != "/" else None
