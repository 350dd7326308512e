"""Letters: looking for them, one with its journey, sending one back."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command, task_command
from dlx_router.console.forms import FormError, as_typed, moment_field, moment_ms
from dlx_router.console.pages.overview import RESTING, missing
from dlx_router.console.rendering import MAX_BODY, cut, hexdump, pretty, quoted
from dlx_router.console.router_api import ApiError
from dlx_router.console.sorting import Order
from dlx_router.core.printable import plain, printable_lines
from dlx_router.core.recovered import LEASES

PAGE: Final = 50
MOST: Final = 1000
COLUMNS: Final = [
    "id", "vhost", "failed_queue", "state", "outcome", "reason", "cause", "policy", "group", "attempts", "redrives",
    "first_ms", "last_ms", "size", "message_id",
]  # fmt: skip
STATES: Final = (
    "retrying", "held", "released", "dead", "parked", "quarantined", "discarded", "redriven", "edited", "retired",
    "gone",
)  # fmt: skip
_MOMENTS: Final = ("since_ms", "until_ms")
_FILTERS: Final = ("q", "queue", "state", "reason", "policy", "group", "vhost", *_MOMENTS)
_REFUSED: Final = 422
_MAX_HEADERS: Final = 50


async def letters(asked: Asked) -> Response:
    """Those that the address asks for, newest first. What the router does not understand is said beside the form."""
    wanted = {name: asked.query(name) for name in _FILTERS}
    limit = MOST if asked.query("format") else PAGE
    order = {"order": "oldest"} if asked.query("sort") == "last" else {}
    answer: dict[str, Any] = {"letters": [], "next": None}
    wanted |= {name: moment_ms(wanted[name]) for name in _MOMENTS}
    problem = ""
    try:
        answer = await asked.get("/letters", **wanted, **order, cursor=asked.query("cursor", most=4000), limit=limit)
    except ApiError as error:
        if error.status != _REFUSED:
            raise
        problem = "; ".join((error.error, *error.problems))
    if problem and asked.query("format"):  # a file has no place beside the list
        raise FormError(problem)
    listed = asked.listing("letters", COLUMNS, answer["letters"])
    older = None if answer["next"] is None else asked.again(cursor=answer["next"])
    return listed or asked.page(
        "letters.html",
        letters=answer["letters"],
        wanted=wanted,
        fields={name: moment_field(wanted[name]) or as_typed(wanted[name]) for name in _MOMENTS},
        said=problem,
        older=older,
        is_first=not asked.query("cursor"),
        states=STATES,
        command=_command(wanted),
        order=Order("last", falls=not order),
        missing=missing(answer),
    )


def _command(wanted: dict[str, str]) -> str:
    known = {name: wanted[name] for name in ("vhost", "queue", "group", "state", "reason", "policy")}
    known |= {name.removesuffix("_ms"): _second(wanted[name]) for name in _MOMENTS}
    if wanted["q"]:
        return command("letters", "search", operand=wanted["q"], **known)
    return command("letters", "list", **known)


def _second(ms: str) -> str:
    moment = moment_field(ms)
    return f"{moment}Z" if moment else ""


async def letter(asked: Asked) -> Response:
    """One letter: once for each failed queue that a copy of it died in."""
    name = asked.request.path_params["letter_id"]
    form = "hex" if asked.query("form") == "hex" else "auto"
    answer = await asked.get(f"/letters/{_named(name)}", queue=asked.query("queue"), form=form)
    copies = [{**copy, **_shown(copy)} for copy in answer["letters"]]
    if asked.query("format") == "json":
        listed = asked.listing("letter", [], answer["letters"])
        assert listed is not None
        return listed
    return asked.page(
        "letter.html", copies=copies, letter_id=name, form=form, command=command("letters", "show", operand=name)
    )


def _shown(copy: dict[str, Any]) -> dict[str, Any]:
    """What a page needs beside what the API says."""
    body = copy["body"]
    texts = {"json": pretty, "hex": hexdump}
    text = None if body["content"] is None else texts.get(body["form"], str)(body["content"])
    event = copy["event"] or {}
    target = copy.get("target")
    rests = copy["state"] in RESTING and target is not None and not target["exchange"]
    place = target["routing_key"] if rests and target is not None else None
    return {
        "leases": {step["redrive_id"] for step in copy["journey"] if step["kind"] in LEASES},
        "timeline": _timeline(copy),
        "parked": copy.get("parked"),  # a router of before has none of these
        "serial": copy.get("serial"),
        "copies": copy.get("copies"),
        "comments": copy.get("comments") or [],  # a router of before has none
        "comment_command": _comment_command(copy),
        "text": None if text is None else cut(text, MAX_BODY),
        "is_cut": text is not None and len(text) > MAX_BODY,
        "headers": {name: _value(value) for name, value in (event.get("headers") or {}).items()},
        "props": event.get("props") or {},
        "error": event.get("error") or {},
        "deaths": event.get("deaths") or [],
        "redacted": event.get("redacted") or [],
        "place": place,
        "commands": [] if place is None else _commands(copy, place),
        "raw": cut(pretty({key: value for key, value in event.items() if key != "body"}), MAX_BODY),
    }


def _commands(copy: dict[str, Any], place: str) -> list[str]:
    """What the buttons of this letter do: send back, change, delete."""
    spec = {"vhost": copy["vhost"], "queue": place, "ids": [copy["id"]]}
    return [task_command(spec), _edit_command(copy, place), task_command({**spec, "kind": "discard"})]


def _comment_command(copy: dict[str, Any]) -> str:
    vhost = copy["vhost"] if copy["vhost"] != "/" else None
    return f"{command('letters', 'comment', queue=copy['failed_queue'], vhost=vhost, operand=copy['id'])} TEXT"


def _edit_command(copy: dict[str, Any], place: str) -> str:
    vhost = copy["vhost"] if copy["vhost"] != "/" else None
    return command("edit", operand=copy["id"], queue=place, vhost=vhost, body="FILE", header="NAME=VALUE")


def _timeline(copy: dict[str, Any]) -> list[dict[str, Any]]:
    """The journey, with what people noted on the way."""
    noted = [{**comment, "kind": "noted", "outcome": None} for comment in copy.get("comments") or ()]
    steps = [{"outcome": None, **step} for step in copy["journey"]]
    return sorted([*steps, *noted], key=lambda step: step["ts_ms"])


def _value(raw: object) -> str:
    """A header's value: the journal has it as JSON in text."""
    try:
        value = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        value = raw
    return plain(value)


async def send_back(asked: Asked) -> Response:
    """One letter, by a task that takes only it."""
    form, name = asked.form, asked.request.path_params["letter_id"]
    body = {"vhost": form.raw("vhost"), "queue": form.raw("queue"), "ids": [name], "rate": 0}
    body |= {"not_a_dead_letter_queue": form.ticked("known")}
    task = await asked.change("POST", "/tasks", body)
    return asked.go(asked.path("/tasks", task["id"], vhost=task["spec"]["vhost"]))


async def discard(asked: Asked) -> Response:
    """One letter is deleted for good, by a task that takes only it."""
    form, name = asked.form, asked.request.path_params["letter_id"]
    if not form.ticked("sure"):
        raise FormError("a letter that is deleted is gone: tick that you mean it")
    body = {"vhost": form.raw("vhost"), "queue": form.raw("queue"), "ids": [name], "rate": 0, "kind": "discard"}
    body |= {"not_a_dead_letter_queue": form.ticked("known")}
    task = await asked.change("POST", "/tasks", body)
    return asked.go(asked.path("/tasks", task["id"], vhost=task["spec"]["vhost"]))


async def comment(asked: Asked) -> Response:
    """What somebody notes on a letter, or rather on the copy of it that failed in this queue."""
    name, text = asked.request.path_params["letter_id"], asked.form.text("text").replace("\r\n", "\n")
    if not text:
        raise FormError("the note is empty, and nothing was kept; write what others are to know")
    queue, vhost = asked.form.raw("queue"), asked.form.raw("vhost")
    await asked.change("POST", f"/letters/{_named(name)}/comments", {"text": text}, queue=queue, vhost=vhost)
    return asked.go(asked.path("/letters", name, queue=queue))


async def edit(asked: Asked) -> Response:
    """The form in which a letter is changed before it goes back."""
    name = asked.request.path_params["letter_id"]
    answer = await asked.get(f"/letters/{_named(name)}", queue=asked.query("queue"), form="hex")  # its very bytes
    copy = answer["letters"][0]
    shown = _shown(copy)
    if shown["place"] is None:
        raise FormError("this letter rests in no queue that is known, so it cannot be changed there", 409)
    text = None if shown["redacted"] else editable(copy["body"])
    command_line = _edit_command(copy, shown["place"])
    return asked.page("edit.html", letter={**copy, **shown}, text=text, was=_digest(text or ""), command=command_line)


def editable(body: Mapping[str, Any]) -> str | None:
    """The body, asked for in hex, as a person may change it: in UTF-8 it is what is stored, byte for byte.

    None where it is not whole, or a form's field would send it back as something else.
    """
    if not body["is_whole"] or body["form"] != "hex":
        return None
    try:
        text = bytes.fromhex(body["content"]).decode()
    except ValueError:
        return None
    return text if printable_lines(text) == text and len(text) <= MAX_BODY else None


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def send_edited(asked: Asked) -> Response:
    """The letter with another body or other headers, by a task."""
    form, name = asked.form, asked.request.path_params["letter_id"]
    body: dict[str, Any] = {"vhost": form.raw("vhost"), "queue": form.raw("queue"), "id": name}
    body |= {"headers": _headers(form.raw("headers")), "not_a_dead_letter_queue": form.ticked("known")}
    text = form.raw("text").replace("\r\n", "\n")
    if _digest(text) != form.text("was"):
        body["text"] = text
    if "text" not in body and not body["headers"]:
        raise FormError("nothing would be changed; write another body or a header")
    task = await asked.change("POST", "/edits", body)
    return asked.go(asked.path("/tasks", task["id"], vhost=task["spec"]["vhost"]))


def _headers(lines: str) -> dict[str, str | None]:
    """NAME=VALUE in each line; a name alone takes the header off."""
    headers: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        name, equals, value = line.partition("=")
        headers[name.strip()] = value.strip() if equals else None
    if len(headers) > _MAX_HEADERS:
        raise FormError(f"headers: at most {_MAX_HEADERS}")
    return headers


def _named(name: str) -> str:
    return quoted(name[:255])
