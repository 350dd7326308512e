"""Commands to operate a router: redrive tasks, doctor, support bundle. Each imports what it needs when it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dlx_router.cli import names

redrive = typer.Typer(
    help="Send dead letters back: filtered, paced, and stopped when it does not help.", no_args_is_help=True
)

Queue = Annotated[str, typer.Argument(help="The dead-letter queue.", autocompletion=names.dead_letter_queues)]
Name = Annotated[str, typer.Argument(help="Id of the task.", metavar="TASK", autocompletion=names.tasks)]
Vhost = Annotated[
    str | None,
    typer.Option(
        help="Vhost of the queue; without it that of DLX_ROUTER_VHOSTS or DLX_ROUTER_AMQP_URL.",
        autocompletion=names.vhosts,
    ),
]
Url = Annotated[
    str,
    typer.Option(
        "--api-url",
        envvar="DLX_ROUTER_API_URL",
        help="Address of the router; default: this machine.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
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
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="Only this letter; may be repeated.", autocompletion=names.letters)
]
Group = Annotated[str | None, typer.Option(help="Only letters of this group.", autocompletion=names.groups)]
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many; without it all.")]
Rate = Annotated[float, typer.Option(min=0, help="Letters a second; 0: as fast as it goes.")]
LOCAL = "http://127.0.0.1:9719"
KNOWN = "not_a_dead_letter_queue"


def add_to(app: typer.Typer) -> None:
    """Put these commands into the whole."""
    app.add_typer(redrive, name="redrive")
    app.command("discard")(discard)
    app.command()(edit)
    app.command()(doctor)
    app.command("support-bundle")(bundle)


@redrive.command()
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
    json: Json = False,
    api_url: Url = LOCAL,
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
    _start({**asked, "dry_run": dry_run, KNOWN: known}, vhost, api_url, yes=yes, wait=wait or dry_run, json=json)


def _settling(kind: str, nothing: str, text: str) -> Callable[..., None]:
    """`discard` and `park`: which letters, how fast; they differ in what becomes of them."""

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
        json: Json = False,
        api_url: Url = LOCAL,
    ) -> None:
        asked = _meant(queue, filter_, group, ids, limit)
        asked |= {"kind": kind, "rate": rate, "dry_run": dry_run, KNOWN: known}
        _start(asked, vhost, api_url, yes=yes, wait=wait or dry_run, json=json)

    command.__doc__ = text
    return command


discard = _settling(
    "discard",
    "nothing is deleted",
    "Delete dead letters for good; the journal keeps who did it and of each letter that it was.",
)
redrive.command("park")(
    _settling("park", "nothing moves", "Put dead letters into parking, where they stay until somebody decides.")
)


def edit(  # noqa: PLR0913 - its options
    letter: Annotated[str, typer.Argument(help="Id of the letter.", autocompletion=names.letters)],
    *,
    queue: Annotated[
        str, typer.Option(help="The dead-letter queue that it lies in.", autocompletion=names.dead_letter_queues)
    ],
    body: Annotated[str | None, typer.Option(help="File with the new body; - is standard input.")] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", help="NAME=VALUE, a string; may be repeated.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--no-header", help="Take this header off.")] = None,
    to_queue: Annotated[str, typer.Option(help="Send it to this queue instead of the one where it failed.")] = "",
    known: Known = False,
    vhost: Vhost = None,
    yes: Yes = False,
    json: Json = False,
    api_url: Url = LOCAL,
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
    to = {"exchange": "", "routing_key": to_queue} if to_queue else None

    def work(of: Any, api: Any) -> int:  # noqa: ANN401 - as for _run
        read = None if body is None else of.read_body(body)
        asked = {"queue": queue, "id": letter, "body": read, "headers": changed, "to": to, KNOWN: known}
        return int(of.edit(api, asked, yes=yes, as_json=json))

    _run(work, api_url, vhost)


def _run(work: Callable[[Any, Any], int], url: str, vhost: str | None) -> None:
    """End with the exit code of the work, which takes the module cli/redrive and the API."""
    from dlx_router.cli import redrive as of  # noqa: PLC0415 - see the module

    raise typer.Exit(of.run(lambda api: work(of, api), url, vhost))


def _meant(
    queue: str, filter_: str | None, group: str | None, ids: list[str] | None, limit: int | None
) -> dict[str, Any]:
    """Which letters, as the API has it. What narrows and is empty is refused: a script's variable is, and means all."""
    for option, value in (("--filter", filter_), ("--group", group), *(("--id", letter) for letter in ids or ())):
        if value is not None and not value.strip():
            raise typer.BadParameter("is empty; leave it out to select all letters", param_hint=option)
    given = {"queue": queue, "filter": filter_, "group": group, "ids": ids, "limit": limit}
    return {name: value for name, value in given.items() if value}


def _start(asked: dict[str, Any], vhost: str | None, url: str, *, yes: bool, wait: bool, json: bool) -> None:
    _run(lambda of, api: of.start(api, asked, yes=yes, wait=wait, as_json=json), url, vhost)


@redrive.command("list")
def every(*, vhost: Vhost = None, json: Json = False, api_url: Url = LOCAL) -> None:
    """Show all tasks, newest first."""
    _run(lambda of, api: of.every(api, as_json=json), api_url, vhost)


@redrive.command()
def show(
    task: Name,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Until it is over.")] = False,
    vhost: Vhost = None,
    json: Json = False,
    api_url: Url = LOCAL,
) -> None:
    """Show one task."""
    _run(lambda of, api: of.show(api, task, follow=follow, as_json=json), api_url, vhost)


@redrive.command()
def pause(task: Name, *, vhost: Vhost = None, json: Json = False, api_url: Url = LOCAL) -> None:
    """Stop a task for now; what was not sent is back in its queue when this returns."""
    _change(task, "pause", vhost, api_url, json=json)


@redrive.command()
def resume(task: Name, *, vhost: Vhost = None, json: Json = False, api_url: Url = LOCAL) -> None:
    """Go on with a task that was paused or stopped; one that its canary stopped sends another canary first."""
    _change(task, "resume", vhost, api_url, json=json)


@redrive.command()
def cancel(task: Name, *, vhost: Vhost = None, json: Json = False, api_url: Url = LOCAL) -> None:
    """End a task for good; what was not sent stays in its queue."""
    _change(task, "cancel", vhost, api_url, json=json)


def _change(task: str, verb: str, vhost: str | None, url: str, *, json: bool) -> None:
    _run(lambda of, api: of.change(api, task, verb, as_json=json), url, vhost)


def doctor(
    *,
    policies: Annotated[
        Path, typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")
    ] = Path("policies"),
    json: Json = False,
) -> None:
    """Look at broker, rights and queues, and say what is wrong and what mends it; needs no running router."""
    from dlx_router.cli import doctor as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run({"policies": str(policies)}, as_json=json))


def bundle(
    *,
    to: Annotated[Path, typer.Option("--to", help="File to write.")] = Path("dlx-router-support.zip"),
    policies: Annotated[
        Path, typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")
    ] = Path("policies"),
    api_url: Url = LOCAL,
) -> None:
    """Write what somebody who helps you needs into a zip file: no secrets, no message data."""
    from dlx_router.cli import bundle as command  # noqa: PLC0415 - see the module

    raise typer.Exit(command.run({"policies": str(policies)}, to, api_url))
