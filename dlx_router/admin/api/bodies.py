"""The body of a letter as the API shows it; where there is none, or not all of it, which cause that has, and what now.

The router never fetches a message to show it: what is not in the journal is said, each cause with its own sentence.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from dlx_router.core.nested_json import is_deep
from dlx_router.index.rows import LYING
from dlx_router.journal.privacy import INLINE_BYTES

Number = TypeVar("Number", int, float)
_TEXTS: Final = ("text/", "application/xml", "application/x-www-form-urlencoded", "application/yaml")
_TO_COME: Final = "`journal: {body: final}` shows it of letters to come"


def body_of(letter: Mapping[str, Any], *, as_hex: bool) -> dict[str, Any]:
    """The body by its content type: JSON as such, text as text, all else in hex. `letter`: as the index knows it.

    JSON is text where a document would not hold all of it (`_document`), or is nested more deeply than people read it.
    """
    mode, sha256, kind, content = letter["stored"] or (None, None, None, None)
    body = {"content_type": kind, "sha256": sha256, "why": None, "is_whole": mode == "inline"}
    if content is None:
        why = f"{_absent(letter, mode)}; {_now(letter)}"
        return body | {"form": "none", "content": None, "is_whole": False, "why": why}
    body["why"] = _partly(letter, mode, len(content))
    form, shown = ("hex", content.hex()) if as_hex else _shown(content, (kind or "").partition(";")[0].strip().lower())
    return body | {"form": form, "content": shown}


def _absent(letter: Mapping[str, Any], mode: str | None) -> str:
    """Why nothing of the body is there."""
    event = letter["event"]
    if event is None:
        return "the letter lay in its queue before the router knew of it and was imported, which reads no bodies"
    if hidden := _places(event):
        return _hidden(_policy(letter), hidden, event)
    if not letter["policy"]:
        return "no policy decided about it, and then the journal shows no body"
    there = "its SHA-256 only" if mode == "hash" else "no body of it"
    return f"the journal has {there}, as `journal` of {_policy(letter)} said when it was decided"


def _places(event: Mapping[str, Any]) -> list[str]:
    return [pointer for pointer in event.get("redacted") or () if pointer.startswith("/")]


def _hidden(policy: str, hidden: list[str], event: Mapping[str, Any]) -> str:
    cause = f"{policy} redacts {', '.join(hidden)}, and the body is no JSON in which only that could be hidden"
    # Places that conditions read are named too, whether or not the policy shows bodies.
    return f"{cause}; or it shows no body at all" if "body_values" in event else f"redacted as a whole: {cause}"


def _partly(letter: Mapping[str, Any], mode: str | None, length: int) -> str | None:
    """Why not all of it, or not as it was."""
    hidden = _places(letter["event"] or {})
    reasons = [f"{_policy(letter)} redacts {', '.join(hidden)}: *** stands there"] if hidden else []
    if mode == "head":
        cut = f"`journal` of {_policy(letter)} said {{body: head}}"
        whose = cut if length < INLINE_BYTES else "an event holds no more"
        reasons.append(f"the journal has the first {length} of {letter['size']} bytes: {whose}; {_now(letter)}")
    return "; ".join(reasons) or None


def _now(letter: Mapping[str, Any]) -> str:
    """Where the whole message can be had, or that it cannot."""
    state, place = letter["state"], letter["target"]
    if state in LYING and place is not None:
        named = not place["exchange"]
        there = "" if named else f"it went to exchange {place['exchange']} with key {place['routing_key']}: "
        source = shlex.quote(place["routing_key"]) if named else "QUEUE"
        vhost = "" if letter["vhost"] == "/" else f" --vhost {shlex.quote(letter['vhost'])}"
        return f"{there}`dlx-router letters export --from {source}{vhost} --id {letter['id']}` reads it there"
    match state:
        case "retrying" | "held":
            return f"it waits, and comes back to {letter['failed_queue']} with its body; {_TO_COME}"
        case "released" | "redriven":
            return f"it has left the router, and who consumes {_sent(letter)} has the body; {_TO_COME}"
        case "gone":
            return f"somebody else took it from its queue, so nobody can show it any more; {_TO_COME}"
    return f"it is in no queue any more, so nobody can show it; {_TO_COME}"


def _sent(letter: Mapping[str, Any]) -> str:
    sent = letter.get("sent_to")
    if letter["state"] == "released" or sent is None or not sent["routing_key"] or sent["exchange"]:
        return str(letter["failed_queue"])
    return str(sent["routing_key"])


def _policy(letter: Mapping[str, Any]) -> str:
    return f"policy {letter['policy']}" if letter["policy"] else "the policy"


def _shown(content: bytes, kind: str) -> tuple[str, Any]:
    is_json = kind == "application/json" or kind.endswith("+json")
    if not (is_json or not kind or kind.startswith(_TEXTS)):
        return "hex", content.hex()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "hex", content.hex()
    if is_json or not kind:
        try:
            return "json", _document(text)
        except (ValueError, RecursionError):
            pass
    return "text", text


def _document(text: str) -> Any:  # noqa: ANN401 - JSON
    """The document; ValueError where it is none, or would not hold all that stands there.

    Two members of the same name and digits beyond those of a float are in the body, and its consumer may read them.
    """
    document = json.loads(
        text, object_pairs_hook=_members, parse_int=_whole, parse_float=_fraction, parse_constant=_no_constant
    )
    if is_deep(document):
        raise ValueError("nested more deeply than people read it")
    return document


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("two members have the same name")
    return members


def _whole(digits: str) -> int:
    return _as_written(digits, int(digits))


def _fraction(digits: str) -> float:
    return _as_written(digits, float(digits))


def _as_written(digits: str, number: Number) -> Number:
    """The number, where answers write it as it stands in the body."""
    if repr(number) != digits:
        raise ValueError(f"{digits[:40]} would be written as another number")
    return number


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
