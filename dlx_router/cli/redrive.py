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
from typing import IO, Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.api import Api
from dlx_router.cli.options import Json, Url, Yes
from dlx_router.cli.output import Id, Number
from dlx_router.cli.timestamps import ago, lasting, shown

app = typer.Typer(
    help="Send dead letters back: filtered, paced, and stopped when it does not help.", no_args_is_help=True
)

EVERY_S: Final = 0.5
OVER: Final = frozenset({"done", "stopped", "cancelled", "paused"})
KNOWN: Final = "not_a_dead_letter_queue"
COLUMNS: Final = (
    Id("task"), "state", Id("queue"), "kind", Number("sent"), Number("stays"), Number("came back"), "started", "by",
    "which", "why",
)  # fmt: skip
_GROUPS: Final = (Id("group"), Id("failed queue"), "reason", Number("letters"))
_IDS: Final = 3
Task = Mapping[str, Any]  # a task, or a part of one, as the API has it

Queue = Annotated[str, typer.Argument(help="The dead-letter queue.")]
TaskId = Annotated[str, typer.Argument(help="Id of the task.", metavar="TASK")]
Vhost = Annotated[
    str | None,
    typer.Option(help="Vhost of the queue; without it that of DLX_ROUTER_VHOSTS or DLX_ROUTER_AMQP_URL."),
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Stay and show how it goes.")]
Filter = Annotated[
    str | None,
    typer.Option("--filter", help="Only letters of which this holds (CEL): reason == 'expired' && age > 3600"),
]
Known = Annotated[
    bool,
    typer.Option(
        "--not-a-dead-letter-queue", help="You know that it is none, or that somebody consumes it; letters only go."
    ),
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this letter; may be repeated.")]
Group = Annotated[str | None, typer.Option(help="Only letters of this group.")]
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many; without it all.")]
Rate = Annotated[float, typer.Option(min=0, help="Letters a second; 0: as fast as it goes.")]


class Tasks:
    """The tasks of one vhost."""

    def __init__(self, url: str | None, vhost: str | None) -> None:
        """`vhost` None: the one that the settings here name."""
        self.api = Api(url)
        self.vhost = self.api.one_vhost(vhost)

    def ask(self, method: str, path: str, body: Task | None = None, **query: str) -> Any:  # noqa: ANN401 - JSON
        """Return the answer, decoded."""
        document = None if body is None else {**body, "vhost": self.vhost}
        return self.api.ask(method, path, query={"vhost": self.vhost, **query}, body=document)


# -- commands ---------------------------------------------------------------------------------------------------------


@app.command()
def start(  # noqa: PLR0913 - its options
    queue: Queue,
    *,
    filter_: Filter = None,
    group: Group = None,
    ids: Ids = None,
    to_queue: Annotated[str, typer.Option(help="Send them to this queue instead of the one where they failed.")] = "",
    to_exchange: Annotated[str, typer.Option(help="Send them to this exchange instead.")] = "",
    routing_key: Annotated[str, typer.Option(help="With this key; only with --to-exchange.")] = "",
    limit: Limit = None,
    rate: Rate = 50.0,
    canary: Annotated[int, typer.Option(help="Send so many first, and watch them.")] = 0,
    watch: Annotated[float, typer.Option(help="Seconds to watch the canary.")] = 60.0,
    max_dead: Annotated[float, typer.Option(help="Stop where more of the canary come back dead, in percent.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, by group; nothing moves.")] = False,
    known: Known = False,
    vhost: Vhost = None,
    wait: Wait = True,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Start a task that sends letters back. Only what was dead before now; stop with pause or cancel."""
    if to_queue and to_exchange:
        raise typer.BadParameter("--to-queue or --to-exchange, not both")
    if routing_key and not to_exchange:
        raise typer.BadParameter("goes with --to-exchange", param_hint="--routing-key")
    to = {"exchange": to_exchange, "routing_key": routing_key or to_queue} if to_queue or to_exchange else None
    first = {"first": canary, "watch_s": watch, "max_dead_percent": max_dead} if canary else None
    asked = _meant(queue, filter_, group, ids, limit)
    asked |= {"rate": rate, "to": to, "canary": first}
    _start({**asked, "dry_run": dry_run, KNOWN: known}, Tasks(url, vhost), yes=yes, wait=wait, as_json=as_json)


def _settling(kind: str, nothing: str, text: str) -> Callable[..., None]:
    """Return `discard` or `park`, which differ in what becomes of the letters."""

    def command(  # noqa: PLR0913 - its options
        queue: Queue,
        *,
        filter_: Filter = None,
        group: Group = None,
        ids: Ids = None,
        limit: Limit = None,
        rate: Rate = 0.0,
        dry_run: Annotated[bool, typer.Option("--dry-run", help=f"Only count, by group; {nothing}.")] = False,
        known: Known = False,
        vhost: Vhost = None,
        wait: Wait = True,
        yes: Yes = False,
        as_json: Json = False,
        url: Url = None,
    ) -> None:
        asked = _meant(queue, filter_, group, ids, limit)
        asked |= {"kind": kind, "rate": rate, "dry_run": dry_run, KNOWN: known}
        _start(asked, Tasks(url, vhost), yes=yes, wait=wait, as_json=as_json)

    command.__doc__ = text
    return command


discard = _settling(
    "discard",
    "nothing is deleted",
    "Delete dead letters for good; the journal keeps who did it and of each letter that it was.",
)
app.command("park")(
    _settling("park", "nothing moves", "Put dead letters into parking, where they stay until somebody decides.")
)


def _meant(
    queue: str, filter_: str | None, group: str | None, ids: list[str] | None, limit: int | None
) -> dict[str, Any]:
    """Which letters, as the API has it. What narrows and is empty is refused: a script's variable is, and means all."""
    for option, value in (("--filter", filter_), ("--group", group), *(("--id", letter) for letter in ids or ())):
        if value is not None and not value.strip():
            raise typer.BadParameter("is empty; leave it out to select all letters", param_hint=option)
    given = {"queue": queue, "filter": filter_, "group": group, "ids": ids, "limit": limit}
    return {name: value for name, value in given.items() if value}


def _start(asked: Task, tasks: Tasks, *, yes: bool, wait: bool, as_json: bool) -> None:
    """Say what will happen, ask, start, and show how it goes."""
    if not yes and not asked["dry_run"]:
        verb = {"redrive": "send back", "discard": "DELETE for good", "park": "park"}[asked.get("kind", "redrive")]
        letters = f"letters with {filters}" if (filters := which(asked)) else "ALL letters"
        to = f" to {_target(asked['to'])}" if asked.get("to") else ""
        first = f", {_canary(asked['canary'])}" if asked.get("canary") else ""
        asked = _confirmed(tasks, asked, f"{verb} {letters} of queue {asked['queue']}{to}, {_rate(asked)}{first}?")
    task = tasks.ask("POST", "/tasks", asked)
    if wait or asked["dry_run"]:
        task = _followed(tasks, task, quiet=as_json)
    code = _printed(task, as_json=as_json)
    narrowed = which({**task["spec"], "limit": 0})
    if task["state"] == "done" and narrowed and not task["counts"]["sent"]:
        output.warn(f"No message in queue {asked['queue']} matches {narrowed}.")
        code = output.FINDINGS
    raise typer.Exit(code)


def edit(  # noqa: PLR0913 - its options
    letter: Annotated[str, typer.Argument(help="Id of the letter.")],
    *,
    queue: Annotated[str, typer.Option(help="The dead-letter queue that it lies in.")],
    body: Annotated[str | None, typer.Option(help="File with the new body; - is standard input.")] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", help="NAME=VALUE, a string; may be repeated.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--no-header", help="Take this header off.")] = None,
    to_queue: Annotated[str, typer.Option(help="Send it to this queue instead of the one where it failed.")] = "",
    known: Known = False,
    vhost: Vhost = None,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Change one letter and send it back; its record and deaths stay, and the journal has it before and after."""
    if body == "-" and not yes:
        raise typer.BadParameter("standard input is the body, so nobody can be asked: say --yes", param_hint="--body")
    changed: dict[str, str | None] = dict.fromkeys(without or ())
    for header in headers or ():
        name, equals, value = header.partition("=")
        if not equals:
            raise typer.BadParameter(f"{header!r}: NAME=VALUE", param_hint="--header")
        changed[name] = value
    tasks = Tasks(url, vhost)
    new = None if body is None else _read(body)
    to = {"exchange": "", "routing_key": to_queue} if to_queue else None
    asked: Task = {"queue": queue, "id": letter, "body": new, "headers": changed, "to": to, KNOWN: known}
    if not yes:
        parts = [] if new is None else [f"a body of {output.number(len(b64decode(new)), 'byte')}"]
        parts += [f'header {name} = "{value}"' for name, value in changed.items() if value is not None]
        parts += [f"no header {name}" for name, value in changed.items() if value is None]
        changes = ", ".join(parts) or "no change"
        asked = _confirmed(tasks, asked, f"send letter {letter} of queue {queue} back with {changes}?")
    task = _followed(tasks, tasks.ask("POST", "/edits", asked), quiet=True)
    _printed(task, as_json=as_json)
    is_sent = task["state"] == "done" and task["counts"]["sent"]
    if task["state"] == "done" and not is_sent:
        output.warn(task["why"] or f"letter {letter} does not lie in queue {queue}")
    raise typer.Exit(output.OK if is_sent else output.FINDINGS)


def _read(path: str) -> str:
    """Return a file's content in base64; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--body") from None
    return b64encode(data).decode()


def _confirmed(tasks: Tasks, asked: Task, question: str) -> Task:
    """Show what lies in the queue, and ask; return the request, which may say that it is no dead-letter queue."""
    preview = tasks.ask("GET", "/tasks/preview", queue=asked["queue"])
    unacked = "" if preview["unacked"] is None else f", {preview['unacked']} unacked"
    messages, consumers = output.number(preview["messages"], "message"), output.number(preview["consumers"], "consumer")
    output.warn(f"queue {preview['queue']}: {messages}{unacked}, {consumers}")
    if preview["objection"]:
        output.warn(f"WARNING: {preview['objection']}; what lies there may be living messages")
    if not output.confirmed(question):
        output.warn("Nothing was done.")
        raise typer.Exit(output.FINDINGS)
    return {**asked, KNOWN: bool(preview["objection"]) or asked[KNOWN]}


@app.command("list")
def every(*, vhost: Vhost = None, as_json: Json = False, url: Url = None) -> None:
    """Show all tasks, newest first."""
    tasks = Tasks(url, vhost)
    rows = list(tasks.api.pages("/tasks", "tasks", "cursor", vhost=tasks.vhost))
    if as_json:
        output.as_json(rows)
    elif not rows:
        output.say("No tasks.")
    else:
        output.table(COLUMNS, [_row(task) for task in rows])


@app.command()
def show(
    task: TaskId,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Until it is over.")] = False,
    vhost: Vhost = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Show one task."""
    tasks = Tasks(url, vhost)
    document = tasks.ask("GET", f"/tasks/{task}")
    code = _printed(_followed(tasks, document, quiet=as_json) if follow else document, as_json=as_json)
    raise typer.Exit(code if follow else output.OK)


def _changing(verb: str, text: str) -> None:
    def command(task: TaskId, *, vhost: Vhost = None, as_json: Json = False, url: Url = None) -> None:
        _printed(Tasks(url, vhost).ask("POST", f"/tasks/{task}/{verb}"), as_json=as_json)

    command.__doc__ = text
    app.command(verb)(command)


_changing("pause", "Stop a task for now; what was not sent is back in its queue when this returns.")
_changing("resume", "Go on with a paused or stopped task; one that its canary stopped sends another canary first.")
_changing("cancel", "End a task for good; what was not sent stays in its queue.")


def export_queue(api: Api, asked: Task, file: IO[str]) -> int:
    """Write the letters that are meant, one a line, by a task that takes none away."""
    task = api.ask("POST", "/tasks", body={**asked, "kind": "export", "rate": 0})
    count = 0
    page: dict[str, Any] = {"next": 0}
    try:
        while page["next"] is not None:
            page = api.get(f"/tasks/{task['id']}/letters", after=page["next"], vhost=asked["vhost"])
            file.writelines(f"{json.dumps(letter, separators=(',', ':'))}\n" for letter in page["letters"])
            count += len(page["letters"])
    except BaseException:
        with suppress(Exception):  # so that what is held goes back at once
            api.ask("POST", f"/tasks/{task['id']}/cancel", query={"vhost": asked["vhost"]})
        raise
    letters = output.number(count, "letter")
    if page["state"] != "done":
        output.warn(f"not whole: {letters}, then the task was {page['state']}: {page['why'] or 'by somebody'}")
        return output.FINDINGS
    output.warn(letters)
    is_narrowed = any(asked.get(name) for name in ("filter", "group", "ids"))
    return output.FINDINGS if is_narrowed and not count else output.OK


def _followed(tasks: Tasks, task: Task, *, quiet: bool) -> Task:
    """Return the task once it is over; on a terminal one line says how far it is."""
    shows = not quiet and sys.stderr.isatty()
    try:
        while task["state"] not in OVER:
            time.sleep(EVERY_S)
            task = tasks.ask("GET", f"/tasks/{task['id']}")
            if shows:
                text = f"{task['state']}: {task['counts']['sent']} of {_estimate(task)} sent"
                print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        output.warn("interrupted; the task goes on: dlx-router redrive list")
        raise typer.Exit(output.INTERRUPTED) from None
    finally:
        if shows:
            print(file=sys.stderr)
    return task


# -- a task in words --------------------------------------------------------------------------------------------------


def which(spec: Task) -> str:
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


def _estimate(task: Task) -> str:
    """How many letters are meant; of an older router all that lay there."""
    if (estimate := task.get("meant")) is None:
        return f"~{task['spec']['limit'] or task['total']}"
    return f"{'' if estimate['is_exact'] else '~'}{estimate['letters']}"


def _target(to: Task) -> str:
    return f"exchange {to['exchange']} with key {to['routing_key']}" if to["exchange"] else f"queue {to['routing_key']}"


def _canary(canary: Task) -> str:
    most = f"{canary['max_dead_percent']:g} %"
    return f"{canary['first']} first, watched for {canary['watch_s']:g} s, at most {most} dead"


def _rate(spec: Task) -> str:
    return f"{spec['rate']:g} a second" if spec.get("rate") else "as fast as it goes"


def _stays(task: Task) -> int:
    counts = task["counts"]
    return int(counts["left"] + counts["unreadable"] + counts["not_letters"])


def _kind(spec: Task) -> str:
    return f"{spec['kind']} (dry run)" if spec["dry_run"] else str(spec["kind"])


def _back(task: Task) -> str:
    return "" if task.get("came_back") is None else str(task["came_back"])


def _row(task: Task) -> Sequence[str]:
    spec = task["spec"]
    numbers = (str(task["counts"]["sent"]), str(_stays(task)), _back(task))
    rest = (ago(task["created_ms"]), task["by"], which(spec) or "all", task["why"])
    return (task["id"], task["state"], spec["queue"], _kind(spec), *numbers, *rest)


def _printed(task: Task, *, as_json: bool) -> int:
    """Print one task, as facts or as JSON; return the exit code of its state."""
    code = output.OK if task["state"] not in {"stopped", "cancelled"} else output.FINDINGS
    if as_json:
        output.as_json(task)
        return code
    output.say(f"Task {task['id']} is {task['state']}: {_kind(task['spec'])} of queue {task['spec']['queue']}")
    output.facts(_facts(task, task["spec"], task["counts"]))
    if task["groups"]:
        output.say("")
        names = ("group", "failed_queue", "reason", "letters")
        output.table(_GROUPS, [[str(group[name]) for name in names] for group in task["groups"]])
    return code


def _facts(task: Task, spec: Task, counts: Task) -> Iterable[tuple[str, str]]:
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
    if edited := spec.get("edit"):
        body = [] if edited["body_bytes"] is None else [f"a body of {output.number(edited['body_bytes'], 'byte')}"]
        yield "changes", ", ".join([*body, *(f"header {name}" for name in edited["headers"])])
    yield "meant", f"{_estimate(task)} of {output.number(task['total'], 'message')} in the queue at first"
    went = "would go" if is_dry else {"discard": "deleted", "park": "parked"}.get(spec["kind"], "sent")
    yield went, str(counts["sent"])
    yield "to go", "" if task["state"] in OVER - {"paused"} or is_dry else _to_go(task)
    yield "stays", f"{_stays(task)}{f' ({odd_text})' if odd_text else ''}"
    yield "came back", _back(task)
    yield "why", task["why"]


def _to_go(task: Task) -> str:
    """How many letters are to go, and how long they take at its rate."""
    estimate, rate = task.get("meant"), task["spec"]["rate"]
    if estimate is None:
        return ""
    left = max(int(estimate["letters"]) - task["counts"]["sent"], 0)
    lasts = f", about {lasting(math.ceil(left / rate) * 1000)} at its rate" if rate and left else ""
    return f"{'' if estimate['is_exact'] else '~'}{left}{lasts}"
