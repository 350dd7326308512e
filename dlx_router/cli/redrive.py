"""`dlx-router redrive …` and `discard`: tasks of a running router, by its API.

Exit: 0 done or shown, 1 the task stopped or was cancelled or nobody said yes, 2 wrong use or cannot reach, 130
interrupted: the task goes on.
"""

import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dlx_router.cli import output, task_text
from dlx_router.cli.api import Api as Asking

EVERY_S: Final = 0.5
OVER: Final = frozenset({"done", "stopped", "cancelled", "paused"})
INTERRUPTED: Final = 130
KNOWN: Final = "not_a_dead_letter_queue"


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
        document = None if body is None else {**body, "vhost": self._vhost}
        return self._asking.ask(method, f"/{kind}{path}", query={"vhost": self._vhost, **query}, body=document)


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
    task_text.print_task(task, as_json=as_json)
    narrowed = task_text.which({**task["spec"], "limit": 0})
    if task["state"] == "done" and narrowed and not task["counts"]["sent"]:
        output.warn(f"No message in queue {asked['queue']} matches {narrowed}.")
        return output.FINDINGS
    return output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS


def edit(api: Api, asked: Mapping[str, Any], *, yes: bool, as_json: bool) -> int:
    """Say what will be changed, ask, and do it."""
    if not yes:
        known = _confirmed(api, asked["queue"], _changes(asked))
        if known is None:
            return output.FINDINGS
        asked = {**asked, KNOWN: known or asked.get(KNOWN, False)}
    task = _followed(api, api.ask("POST", body=asked, kind="edits"), quiet=True)
    task_text.print_task(task, as_json=as_json)
    if task["state"] == "done" and not task["counts"]["sent"]:
        why = task["why"] or f"letter {asked['id']} does not lie in queue {asked['queue']}"
        output.warn(why)
        return output.FINDINGS
    return output.OK if task["state"] == "done" else output.FINDINGS


def _confirmed(api: Api, queue: str, question: str) -> bool | None:
    """Whether a person who was shown what lies there says yes: then, whether that is no dead-letter queue. None: no."""
    preview = api.ask("GET", "/preview", queue=queue)
    for line in _shown(preview):
        output.warn(line)
    if output.confirmed(question):
        return bool(preview["objection"])
    output.warn("Nothing was done.")
    return None


def _shown(preview: Mapping[str, Any]) -> Iterable[str]:
    """What lies in a queue, and what is against taking anything from it."""
    unacked = "" if preview["unacked"] is None else f", {preview['unacked']} unacked"
    consumers = output.number(preview["consumers"], "consumer")
    yield f"queue {preview['queue']}: {output.number(preview['messages'], 'message')}{unacked}, {consumers}"
    if preview["objection"]:
        yield f"WARNING: {preview['objection']}; what lies there may be living messages"


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
    which = f"letters with {filters}" if (filters := task_text.which(asked)) else "ALL letters"
    to = f" to {task_text.target(asked['to'])}" if asked.get("to") else ""
    first = f", {task_text.canary_text(asked['canary'])}" if asked.get("canary") else ""
    return f"{verb} {which} of queue {asked['queue']}{to}, {task_text.rate_text(asked)}{first}?"


def follow(api: Api, task_id: str, *, as_json: bool) -> int:
    """Show a task until it is over."""
    task = _followed(api, api.ask("GET", f"/{task_id}"), quiet=as_json)
    task_text.print_task(task, as_json=as_json)
    return output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS


def _followed(api: Api, task: Any, *, quiet: bool) -> Any:  # noqa: ANN401 - JSON
    watched = not quiet and sys.stderr.isatty() and task["state"] not in OVER
    show = _bar(task) if watched else lambda _task: None
    try:
        while task["state"] not in OVER:
            time.sleep(EVERY_S)
            task = api.ask("GET", f"/{task['id']}")
            show(task)
    finally:  # or the terminal is left without a cursor
        show(None)
    return task


def _bar(task: Any) -> Callable[[Any], None]:  # noqa: ANN401 - JSON
    """How far it is, of the letters that are meant, and how long it takes still."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to import

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[told]}", markup=False))
    progress = Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True))
    bar = progress.add_task(task["state"], total=task_text.meant(task)[0], told=task_text.progress(task))
    progress.start()

    def show(now: Any) -> None:  # noqa: ANN401 - JSON
        if now is None:
            progress.stop()
            return
        fields = {
            "completed": now["counts"]["sent"],
            "total": max(task_text.meant(now)[0], 1),
            "description": now["state"],
        }
        progress.update(bar, told=task_text.progress(now), **fields)

    return show


def change(api: Api, task_id: str, verb: str, *, as_json: bool) -> int:
    """Pause, resume or cancel."""
    task_text.print_task(api.ask("POST", f"/{task_id}/{verb}"), as_json=as_json)
    return output.OK


def show(api: Api, task_id: str, *, as_json: bool) -> int:
    """One task."""
    task_text.print_task(api.ask("GET", f"/{task_id}"), as_json=as_json)
    return output.OK


def every(api: Api, *, as_json: bool) -> int:
    """All tasks."""
    tasks = [*_listed(api)]
    if as_json:
        output.as_json(tasks)
    elif not tasks:
        output.say("No tasks.")
    else:
        output.table(task_text.COLUMNS, [task_text.row(task) for task in tasks])
    return output.OK


def _listed(api: Api) -> Iterable[Any]:
    answer = api.ask("GET")
    yield from answer["tasks"]
    while following := answer.get("next"):  # a router of before sends all at once
        answer = api.ask("GET", cursor=following)
        yield from answer["tasks"]
