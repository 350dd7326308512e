"""`dlx-router redrive …`, `discard`, `edit` and `letters export --from QUEUE`: tasks of a running router, by its API.

Exit: 0 done or shown; 1 the task stopped or was cancelled, nothing matched, or the answer was no; 2 wrong use or the
router cannot be reached; 130 interrupted: the task goes on.
"""

import json
import math
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

import typer

from dlx_router.cli import output
from dlx_router.cli.api import Api as Asking
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, lasting, shown

EVERY_S: Final = 0.5
OVER: Final = frozenset({"done", "stopped", "cancelled", "paused"})
INTERRUPTED: Final = 130
KNOWN: Final = "not_a_dead_letter_queue"
COLUMNS: Final = (
    Id("task"), "state", Id("queue"), "kind", Number("sent"), Number("stays"), Number("came back"), Number("meant"),
    "started", "by", "rate", "which", "why",
)  # fmt: skip
_GROUPS: Final = (Id("group"), Id("failed queue"), "reason", Number("letters"))
_IDS: Final = 3
Json = Mapping[str, Any]  # a task, or a part of one, as the API has it


class Refused(Exception):
    """It cannot be asked for so; says why."""


class Api:
    """The tasks of one vhost; ends the command if the router does not answer, as `cli.api` does."""

    def __init__(self, url: str, vhost: str | None) -> None:
        """`vhost` None: the one that the settings here name. Refused if they name several."""
        self._asking = Asking(url)
        named = self._asking.settings.vhost_list() if vhost is None else [vhost]
        if len(named) > 1 or (vhost is None and named == ["*"]):
            raise Refused(f"DLX_ROUTER_VHOSTS names {', '.join(named)}; say --vhost")
        self._vhost = named[0]

    def ask(self, method: str, path: str = "", body: Any = None, kind: str = "tasks", **query: str) -> Any:  # noqa: ANN401 - JSON
        """Return the answer, decoded."""
        document = None if body is None else {**body, "vhost": self._vhost}
        return self._asking.ask(method, f"/{kind}{path}", query={"vhost": self._vhost, **query}, body=document)


def run(work: Callable[[Api], int], url: str, vhost: str | None) -> int:
    """Return the exit code of `work`; what the router or the network refuses is printed."""
    try:
        return work(Api(url, vhost))
    except Refused as error:
        return output.wrong_use(error)
    except KeyboardInterrupt:
        output.warn("interrupted; a task that was started goes on: dlx-router redrive list")
        return INTERRUPTED


# -- commands ---------------------------------------------------------------------------------------------------------


def start(api: Api, asked: Json, *, yes: bool, wait: bool, as_json: bool) -> int:
    """Say what will happen, ask, start, and show how it goes."""
    if not yes and not asked.get("dry_run"):
        verb = {"redrive": "send back", "discard": "DELETE for good", "park": "park"}[asked.get("kind", "redrive")]
        letters = f"letters with {filters}" if (filters := which(asked)) else "ALL letters"
        to = f" to {_target(asked['to'])}" if asked.get("to") else ""
        first = f", {_canary(asked['canary'])}" if asked.get("canary") else ""
        asked = _confirmed(api, asked, f"{verb} {letters} of queue {asked['queue']}{to}, {_rate(asked)}{first}?")
    task = api.ask("POST", body=asked)
    if wait:
        task = _followed(api, task, quiet=as_json)
    code = _printed(task, as_json=as_json)
    narrowed = which({**task["spec"], "limit": 0})
    if task["state"] == "done" and narrowed and not task["counts"]["sent"]:
        output.warn(f"No message in queue {asked['queue']} matches {narrowed}.")
        return output.FINDINGS
    return code


def edit(api: Api, asked: Json, *, yes: bool, as_json: bool) -> int:
    """Say what will be changed, ask, and do it."""
    if not yes:
        headers = asked["headers"].items()
        body = [] if asked["body"] is None else [f"a body of {output.number(len(b64decode(asked['body'])), 'byte')}"]
        body += [f'header {name} = "{value}"' for name, value in headers if value is not None]
        body += [f"no header {name}" for name, value in headers if value is None]
        changes = ", ".join(body) or "no change"
        asked = _confirmed(api, asked, f"send letter {asked['id']} of queue {asked['queue']} back with {changes}?")
    task = _followed(api, api.ask("POST", body=asked, kind="edits"), quiet=True)
    _printed(task, as_json=as_json)
    if task["state"] == "done" and not task["counts"]["sent"]:
        output.warn(task["why"] or f"letter {asked['id']} does not lie in queue {asked['queue']}")
        return output.FINDINGS
    return output.OK if task["state"] == "done" else output.FINDINGS


def _confirmed(api: Api, asked: Json, question: str) -> Json:
    """Show what lies in the queue, and ask; return the request, which may say that it is no dead-letter queue."""
    preview = api.ask("GET", "/preview", queue=asked["queue"])
    unacked = "" if preview["unacked"] is None else f", {preview['unacked']} unacked"
    messages, consumers = output.number(preview["messages"], "message"), output.number(preview["consumers"], "consumer")
    output.warn(f"queue {preview['queue']}: {messages}{unacked}, {consumers}")
    if preview["objection"]:
        output.warn(f"WARNING: {preview['objection']}; what lies there may be living messages")
    if not output.confirmed(question):
        output.warn("Nothing was done.")
        raise typer.Exit(output.FINDINGS)
    return {**asked, KNOWN: bool(preview["objection"]) or asked.get(KNOWN, False)}


def read_body(path: str) -> str:
    """Return the file's content in base64; `-` is standard input. Refused if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"--body {path}: {error.strerror}") from None
    return b64encode(data).decode()


def change(api: Api, task_id: str, verb: str, *, as_json: bool) -> int:
    """Pause, resume or cancel."""
    _printed(api.ask("POST", f"/{task_id}/{verb}"), as_json=as_json)
    return output.OK


def show(api: Api, task_id: str, *, follow: bool, as_json: bool) -> int:
    """Show one task; `follow`: until it is over."""
    task = api.ask("GET", f"/{task_id}")
    code = _printed(_followed(api, task, quiet=as_json) if follow else task, as_json=as_json)
    return code if follow else output.OK


def every(api: Api, *, as_json: bool) -> int:
    """Show all tasks."""
    answer = api.ask("GET")
    tasks = answer["tasks"]
    while following := answer.get("next"):
        answer = api.ask("GET", cursor=following)
        tasks += answer["tasks"]
    if as_json:
        output.as_json(tasks)
    elif not tasks:
        output.say("No tasks.")
    else:
        output.table(COLUMNS, [_row(task) for task in tasks])
    return output.OK


def export_queue(api: Asking, asked: Json, to: Path | None) -> int:
    """Write the letters that are meant, one a line, by a task that takes none away.

    A file has its name once it is whole; until then it ends with .part.
    """
    if to is None:
        return _export(api, asked, sys.stdout)
    part = to.with_name(f"{to.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            code = _export(api, asked, file)
        if code == output.OK:
            part.replace(to)
    except OSError as error:
        output.warn(f"{error.filename or to}: {error.strerror}; name a file that can be written")
        return output.WRONG_USE
    return code


def _export(api: Asking, asked: Json, file: IO[str]) -> int:
    task = api.ask("POST", "/tasks", body={**asked, "kind": "export", "rate": 0})
    count = 0
    page: dict[str, Any] = {"next": 0}
    with _Bar("Letters") as bar:
        try:
            while page["next"] is not None:
                page = api.get(f"/tasks/{task['id']}/letters", after=page["next"], vhost=asked["vhost"])
                for letter in page["letters"]:
                    file.write(f"{json.dumps(letter, separators=(',', ':'))}\n")
                count += len(page["letters"])
                bar.show(count, task["spec"]["limit"] or task["total"])
        except BaseException:
            with suppress(typer.Exit):  # so that what is held goes back at once
                api.ask("POST", f"/tasks/{task['id']}/cancel", query={"vhost": asked["vhost"]})
            raise
    letters = output.number(count, "letter")
    if page["state"] != "done":
        output.warn(f"not whole: {letters}, then the task was {page['state']}: {page['why'] or 'by somebody'}")
        return output.FINDINGS
    output.warn(letters)
    is_narrowed = any(asked.get(name) for name in ("filter", "group", "ids"))
    return output.FINDINGS if is_narrowed and not count else output.OK


# -- how far it is ----------------------------------------------------------------------------------------------------


def _followed(api: Api, task: Json, *, quiet: bool) -> Json:
    with _Bar(task["state"], quiet=quiet or task["state"] in OVER) as bar:
        while task["state"] not in OVER:
            time.sleep(EVERY_S)
            task = api.ask("GET", f"/{task['id']}")
            back = f", {task['came_back']} came back" if task.get("came_back") else ""
            sent = task["counts"]["sent"]
            bar.show(sent, meant(task)[0], task["state"], f"{sent} of {_meant(task)} sent{back}")
    return task


class _Bar:
    """A progress bar, if standard error is a terminal."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name, self._quiet = name, quiet or not sys.stderr.isatty()

    def __enter__(self) -> Self:
        if not self._quiet:
            from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above

            columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[text]}", markup=False))
            self._progress = Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True))
            self._row = self._progress.add_task(self._name, total=None, text="")
            self._progress.start()
        return self

    def show(self, done: int, total: int, name: str = "", text: str = "") -> None:
        """So much is done, of a total that may grow."""
        if not self._quiet:
            self._progress.update(
                self._row,
                description=name or self._name,
                completed=done,
                total=max(total, 1),
                text=text or f"{done} of {total}",
            )

    def __exit__(self, *_error: object) -> None:
        if not self._quiet:
            self._progress.stop()


# -- a task in words --------------------------------------------------------------------------------------------------


def which(spec: Json) -> str:
    """Return what narrows a task; "" if all letters are meant."""
    ids = spec.get("ids") or ()
    more = (spec.get("id_count") or len(ids)) - _IDS  # a list has the first ids only
    filters = {
        "filter": spec.get("filter"),
        "group": spec.get("group"),
        "id": f"{', '.join(ids[:_IDS])}{f' and {more} more' if more > 0 else ''}",
        "limit": spec.get("limit"),
    }
    return ", ".join(f"{name} {value}" for name, value in filters.items() if value)


def meant(task: Json) -> tuple[int, bool]:
    """Return how many letters are meant, and whether that is exact; of an older router all that lay there."""
    estimate = task.get("meant")
    if estimate is None:
        return int(task["spec"]["limit"] or task["total"]), False
    return int(estimate["letters"]), bool(estimate["is_exact"])


def _meant(task: Json) -> str:
    letters, is_exact = meant(task)
    return f"{letters}" if is_exact else f"~{letters}"


def _target(to: Json) -> str:
    return f"exchange {to['exchange']} with key {to['routing_key']}" if to["exchange"] else f"queue {to['routing_key']}"


def _canary(canary: Json) -> str:
    most = f"{canary['max_dead_percent']:g} %"
    return f"{canary['first']} first, watched for {canary['watch_s']:g} s, at most {most} dead"


def _rate(spec: Json) -> str:
    return f"{spec['rate']:g} a second" if spec.get("rate") else "as fast as it goes"


def _stays(task: Json) -> int:
    counts = task["counts"]
    return int(counts["left"] + counts["unreadable"] + counts["not_letters"])


def _kind(spec: Json) -> str:
    return f"{spec['kind']} (dry run)" if spec["dry_run"] else str(spec["kind"])


def _row(task: Json) -> Sequence[str]:
    """A task as a line of a table: see COLUMNS."""
    spec, back = task["spec"], "–" if task.get("came_back") is None else str(task["came_back"])
    numbers = (str(task["counts"]["sent"]), str(_stays(task)), back, _meant(task))
    rate = "" if spec["dry_run"] else f"{spec['rate']:g}/s" if spec["rate"] else "unlimited"
    started = (ago(task["created_ms"]), task["by"], rate, which(spec) or "all")
    return (task["id"], task["state"], spec["queue"], _kind(spec), *numbers, *started, task["why"])


def _printed(task: Json, *, as_json: bool) -> int:
    """Print one task, as facts or as JSON; return the exit code of its state."""
    code = output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS
    if as_json:
        output.as_json(task)
        return code
    output.say(f"Task {task['id']} is {task['state']}: {_kind(task['spec'])} of queue {task['spec']['queue']}")
    output.facts([*_facts(task, task["spec"], task["counts"])])
    if task["groups"]:
        output.say("")
        names = ("group", "failed_queue", "reason", "letters")
        output.table(_GROUPS, [[str(group[name]) for name in names] for group in task["groups"]])
    return code


def _facts(task: Json, spec: Json, counts: Json) -> Iterable[tuple[str, str]]:
    is_dry = spec["dry_run"]
    odd = {"no letters": counts["not_letters"], "unreadable": counts["unreadable"]}
    odd_text = ", ".join(f"{count} of them {what}" for what, count in odd.items() if count)
    yield "started", f"{shown(task['created_ms'])} ({ago(task['created_ms'])}) by {task['by']}"
    yield "changed", f"{shown(task['changed_ms'])} ({ago(task['changed_ms'])})"
    yield "which", which(spec) or "all letters that were dead before it started"
    yield "to", _target(spec["to"]) if spec["to"] else ""
    yield "rate", "" if is_dry else _rate(spec)
    passed = ", passed" if task["canary_passed"] else ""
    yield "canary", f"{_canary(spec['canary'])}{passed}" if spec["canary"] and not is_dry else ""
    yield "changes", _edited(spec.get("edit"))
    yield "meant", f"{_meant(task)} of {output.number(task['total'], 'message')} in the queue at first"
    went = "would go" if is_dry else {"discard": "deleted", "park": "parked"}.get(spec["kind"], "sent")
    yield went, str(counts["sent"])
    yield "to go", "" if task["state"] in OVER - {"paused"} or is_dry else _to_go(task)
    yield "stays", f"{_stays(task)}{f' ({odd_text})' if odd_text else ''}"
    yield "came back", "" if task.get("came_back") is None else str(task["came_back"])
    yield "why", task["why"]


def _to_go(task: Json) -> str:
    """Return how many letters are to go, and how long they take at its rate."""
    letters, is_exact = meant(task)
    left, rate = max(letters - task["counts"]["sent"], 0), task["spec"]["rate"]
    lasts = f", about {lasting(math.ceil(left / rate) * 1000)} at its rate" if rate and left else ""
    return f"{left if is_exact else f'~{left}'}{lasts}"


def _edited(edited: Json | None) -> str:
    if edited is None:
        return ""
    body = [] if edited["body_bytes"] is None else [f"a body of {output.number(edited['body_bytes'], 'byte')}"]
    return ", ".join([*body, *(f"header {name}" for name in edited["headers"])])
