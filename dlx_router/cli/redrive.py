"""`dlx-router redrive …` and `discard`: tasks of a running router, by its API.

Exit: 0 done or shown, 1 the task stopped or was cancelled or nobody said yes, 2 wrong use or cannot reach, 130
interrupted: the task goes on.
"""

import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dlx_router.cli import output
from dlx_router.cli.api import Api as Asking
from dlx_router.cli.layout import Id, Number, Sentence
from dlx_router.cli.timestamps import ago, shown

EVERY_S: Final = 0.5
OVER: Final = frozenset({"done", "stopped", "cancelled", "paused"})
INTERRUPTED: Final = 130
_IDS: Final = 3
KNOWN: Final = "not_a_dead_letter_queue"
_COLUMNS: Final = (
    Id("task"), "state", Id("queue"), "kind", Number("sent"), Number("stays"), Number("came back"), Number("meant"),
    "started", "by", "rate", Sentence("which"), Sentence("why"),
)  # fmt: skip
_GROUPS: Final = (Id("group"), Id("failed queue"), "reason", Number("letters"))


class Refused(Exception):
    """It cannot be asked for so; says why."""


class Api:
    """The tasks of one vhost, as the router tells them; ends the command where it has no answer, as `cli.api` does."""

    def __init__(self, url: str, vhost: str | None) -> None:
        """`vhost` None: the one that the settings here name. Refused where they name several: nobody should guess."""
        self._asking = Asking(url)
        named = self._asking.settings.vhost_list() if vhost is None else [vhost]
        if len(named) > 1 or (vhost is None and named == ["*"]):
            raise Refused(f"DLX_ROUTER_VHOSTS names {', '.join(named)}; say --vhost")
        self._vhost = named[0]

    def ask(self, method: str, path: str = "", body: Any = None, kind: str = "tasks", **query: str) -> Any:  # noqa: ANN401 - JSON
        """The answer, decoded."""
        told = None if body is None else {**body, "vhost": self._vhost}
        return self._asking.ask(method, f"/{kind}{path}", query={"vhost": self._vhost, **query}, body=told)


def run(work: Callable[[Api], int], url: str, vhost: str | None) -> int:
    """The exit code of `work`; what the router or the network refuses is printed."""
    try:
        return work(Api(url, vhost))
    except Refused as error:
        return output.wrong_use(error)
    except KeyboardInterrupt:
        output.warn("interrupted; a task that was started goes on: dlx-router redrive list")
        return INTERRUPTED


def start(api: Api, asked: Mapping[str, Any], *, yes: bool, wait: bool, as_json: bool) -> int:
    """Say what will happen, ask, start, and show how it goes."""
    if not yes and not asked.get("dry_run"):
        known = _confirmed(api, asked["queue"], _plan(asked))
        if known is None:
            return output.FINDINGS
        asked = {**asked, KNOWN: known or asked.get(KNOWN, False)}
    task = api.ask("POST", body=asked)
    if wait:
        task = _followed(api, task, quiet=as_json)
    _print(task, as_json=as_json)
    return output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS


def edit(api: Api, asked: Mapping[str, Any], *, yes: bool, as_json: bool) -> int:
    """Say what will be changed, ask, and do it."""
    if not yes:
        known = _confirmed(api, asked["queue"], _changes(asked))
        if known is None:
            return output.FINDINGS
        asked = {**asked, KNOWN: known or asked.get(KNOWN, False)}
    task = _followed(api, api.ask("POST", body=asked, kind="edits"), quiet=True)
    _print(task, as_json=as_json)
    if task["state"] == "done" and not task["counts"]["sent"]:
        why = task["why"] or f"letter {asked['id']} does not lie in queue {asked['queue']}"
        output.warn(why)
        return output.FINDINGS
    return output.OK if task["state"] == "done" else output.FINDINGS


def _confirmed(api: Api, queue: str, question: str) -> bool | None:
    """Whether a person who was shown what lies there says yes: then, whether that is no dead-letter queue. None: no."""
    found = api.ask("GET", "/preview", queue=queue)
    for line in _shown(found):
        output.warn(line)
    if output.confirmed(question):
        return bool(found["objection"])
    output.warn("Nothing was done.")
    return None


def _shown(found: Mapping[str, Any]) -> Iterable[str]:
    """What lies in a queue, and what is against taking anything from it."""
    unacked = "" if found["unacked"] is None else f", {found['unacked']} unacked"
    consumers = output.number(found["consumers"], "consumer")
    yield f"queue {found['queue']}: {output.number(found['messages'], 'message')}{unacked}, {consumers}"
    if found["letters"] is None:
        yield f"how many of them are letters was not looked at: {found['not_sampled']}"
    elif found["sampled"]:
        share = round(100 * found["letters"] / found["sampled"])
        yield f"of the first {found['sampled']}, {found['letters']} are letters ({share} %); what is none stays"
    if found["objection"]:
        yield f"WARNING: {found['objection']}; what lies there may be living messages"


def _changes(asked: Mapping[str, Any]) -> str:
    put = [f'header {name} = "{value}"' for name, value in asked["headers"].items() if value is not None]
    off = [f"no header {name}" for name, value in asked["headers"].items() if value is None]
    body = [f"a body of {output.number(len(b64decode(asked['body'])), 'byte')}"] if asked["body"] is not None else []
    return (
        f"send letter {asked['id']} of queue {asked['queue']} back with {', '.join(body + put + off) or 'no change'}?"
    )


def read_body(path: str) -> str:
    """The file's content in base64; `-` is standard input. Refused where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"--body {path}: {error.strerror}") from None
    return b64encode(data).decode()


def _plan(asked: Mapping[str, Any]) -> str:
    verb = {"redrive": "send back", "discard": "DELETE for good", "park": "park"}[asked.get("kind", "redrive")]
    which = f"letters with {said}" if (said := _which(asked)) else "ALL letters"
    to = f" to {_target(asked['to'])}" if asked.get("to") else ""
    first = f", {_canary(asked['canary'])}" if asked.get("canary") else ""
    return f"{verb} {which} of queue {asked['queue']}{to}, {_rate(asked)}{first}?"


def _which(spec: Mapping[str, Any]) -> str:
    """What narrows a task; "" where all letters are meant."""
    ids = spec.get("ids") or ()
    told = {
        "filter": spec.get("filter"),
        "group": spec.get("group"),
        "id": f"{', '.join(ids[:_IDS])}{f' and {len(ids) - _IDS} more' if len(ids) > _IDS else ''}",
        "limit": spec.get("limit"),
    }
    return ", ".join(f"{name} {value}" for name, value in told.items() if value)


def _target(to: Mapping[str, Any]) -> str:
    return f"exchange {to['exchange']} with key {to['routing_key']}" if to["exchange"] else f"queue {to['routing_key']}"


def _canary(canary: Mapping[str, Any]) -> str:
    most = f"{canary['max_dead_percent']:g} %"
    return f"{canary['first']} first, watched for {canary['watch_s']:g} s, at most {most} dead"


def _rate(spec: Mapping[str, Any]) -> str:
    rate = f"{spec['rate']:g} a second" if spec.get("rate") else "as fast as it goes"
    ramp = ", ".join(f"{step:g}" for step in spec.get("ramp") or ())
    return f"{rate}, first {ramp}" if ramp else rate


def follow(api: Api, task_id: str, *, as_json: bool) -> int:
    """Show a task until it is over."""
    task = _followed(api, api.ask("GET", f"/{task_id}"), quiet=as_json)
    _print(task, as_json=as_json)
    return output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS


def _followed(api: Api, task: Any, *, quiet: bool) -> Any:  # noqa: ANN401 - JSON
    watched = not quiet and sys.stderr.isatty() and task["state"] not in OVER
    show = _bar(task) if watched else lambda _task: None
    while task["state"] not in OVER:
        time.sleep(EVERY_S)
        task = api.ask("GET", f"/{task['id']}")
        show(task)
    show(None)
    return task


def _bar(task: Any) -> Callable[[Any], None]:  # noqa: ANN401 - JSON
    """How far it is, of the letters that are meant, and how long it takes still."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to import

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[told]}", markup=False))
    progress = Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True))
    bar = progress.add_task(task["state"], total=_meant(task)[0], told=_progress(task))
    progress.start()

    def show(now: Any) -> None:  # noqa: ANN401 - JSON
        if now is None:
            progress.stop()
            return
        told = {"completed": now["counts"]["sent"], "total": max(_meant(now)[0], 1), "description": now["state"]}
        progress.update(bar, told=_progress(now), **told)

    return show


def _meant(task: Mapping[str, Any]) -> tuple[int, bool]:
    """How many letters are meant, and whether that is known for sure; of an older router all that lay there."""
    said = task.get("meant")
    if said is None:
        return int(task["spec"]["limit"] or task["total"]), False
    return int(said["letters"]), bool(said["is_exact"])


def _meant_text(task: Mapping[str, Any]) -> str:
    letters, is_exact = _meant(task)
    return f"{letters}" if is_exact else f"~{letters}"


def _progress(task: Mapping[str, Any]) -> str:
    back = f", {task['came_back']} came back" if task.get("came_back") else ""
    return f"{task['counts']['sent']} of {_meant_text(task)} sent{back}"


def change(api: Api, task_id: str, verb: str, *, as_json: bool) -> int:
    """Pause, resume or cancel."""
    _print(api.ask("POST", f"/{task_id}/{verb}"), as_json=as_json)
    return output.OK


def show(api: Api, task_id: str, *, as_json: bool) -> int:
    """One task."""
    _print(api.ask("GET", f"/{task_id}"), as_json=as_json)
    return output.OK


def every(api: Api, *, as_json: bool) -> int:
    """All tasks."""
    found = api.ask("GET")["tasks"]
    if as_json:
        output.as_json(found)
    elif not found:
        output.say("No tasks.")
    else:
        output.table(_COLUMNS, [_row(task) for task in found])
    return output.OK


def _stays(task: Any) -> int:  # noqa: ANN401 - JSON
    counts = task["counts"]
    return int(counts["left"] + counts["unreadable"] + counts["not_letters"])


def _kind(spec: Mapping[str, Any]) -> str:
    return f"{spec['kind']} (dry run)" if spec["dry_run"] else str(spec["kind"])


def _back(task: Mapping[str, Any]) -> str:
    """How many came back; "–" where nobody can say, or none could."""
    return "–" if task.get("came_back") is None else str(task["came_back"])


def _row(task: Any) -> Sequence[str]:  # noqa: ANN401 - JSON
    spec = task["spec"]
    numbers = (str(task["counts"]["sent"]), str(_stays(task)), _back(task), _meant_text(task))
    rate = "" if spec["dry_run"] else f"{spec['rate']:g}/s" if spec["rate"] else "unlimited"
    started = (ago(task["created_ms"]), task["by"], rate, _which(spec) or "all")
    return (task["id"], task["state"], spec["queue"], _kind(spec), *numbers, *started, task["why"])


def _print(task: Any, *, as_json: bool) -> None:  # noqa: ANN401 - JSON
    if as_json:
        output.as_json(task)
        return
    spec, counts = task["spec"], task["counts"]
    names = [spec["queue"], *(spec["to"] or {}).values(), *spec["ids"]]
    output.say(f"Task {task['id']} is {task['state']}: {_kind(spec)} of queue {spec['queue']}", ids=names)
    went = "would go" if spec["dry_run"] else {"discard": "deleted", "park": "parked"}.get(spec["kind"], "sent")
    odd = {"no letters": counts["not_letters"], "unreadable": counts["unreadable"]}
    odd_text = ", ".join(f"{count} of them {what}" for what, count in odd.items() if count)
    facts = (
        ("started", f"{shown(task['created_ms'])} ({ago(task['created_ms'])}) by {task['by']}"),
        ("changed", f"{shown(task['changed_ms'])} ({ago(task['changed_ms'])})"),
        ("which", _which(spec) or "all letters that were dead before it started"),
        ("to", _target(spec["to"]) if spec["to"] else ""),
        ("rate", "" if spec["dry_run"] else _rate(spec)),
        ("canary", _canary(spec["canary"]) + (", passed" if task["canary_passed"] else "") if spec["canary"] else ""),
        ("changes", _edited(spec.get("edit"))),
        ("meant", f"{_meant_text(task)} of {output.number(task['total'], 'message')} in the queue at first"),
        (went, str(counts["sent"])),
        ("stays", f"{_stays(task)}{f' ({odd_text})' if odd_text else ''}"),
        ("came back", "" if task.get("came_back") is None else str(task["came_back"])),
        ("why", task["why"]),
    )
    output.facts(facts, ids=names)
    if task["groups"]:
        output.say("")
        rows = [(one["group"], one["failed_queue"], one["reason"], str(one["letters"])) for one in task["groups"]]
        output.table(_GROUPS, rows)


def _edited(edit: Mapping[str, Any] | None) -> str:
    if edit is None:
        return ""
    body = [] if edit["body_bytes"] is None else [f"a body of {output.number(edit['body_bytes'], 'byte')}"]
    return ", ".join([*body, *(f"header {name}" for name in edit["headers"])])
