"""A declared death: what a consumer says in header `dlx-death`, and what other clients say of their errors in theirs.

A declaration is obeyed only where it came by the exchange `<prefix>.declared`; the header alone says nothing. Layout:
docs/client.md. Members that are not known are left alone, so that newer clients are understood.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core.letter import Declared
from dlx_router.core.words import APPLICATION

HEADER: Final = "dlx-death"
MAX_KEYS: Final = 100
MAX_NAME_BYTES: Final = 255
MAX_RETRY_AFTER_MS: Final = 365 * 86_400_000
MAX_TYPE, MAX_MESSAGE, MAX_FRAME, MAX_TAG = 200, 1000, 500, 255
NEVER: Final = "never"
_REASON: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


class DeclarationError(ValueError):
    """The header is none: says which member is wrong, and what it should be."""


class Declaration(NamedTuple):
    """A declared death. `reason` begins with `application`; `error` is None where nothing is said of one.

    `invented_id`: the client library gave the message an id that the letter did not have.
    """

    queue: str
    exchange: str
    routing_keys: tuple[str, ...]
    reason: str
    declared: Declared
    error: Mapping[str, str] | None = None
    original_expiration: str | None = None
    invented_id: bool = False


def read(text: bytes) -> Declaration:
    """The declaration, or DeclarationError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise DeclarationError("not JSON") from None
    if not isinstance(document, dict):
        raise DeclarationError("not a JSON object")
    after = _whole(document, "retry_after_ms")
    return Declaration(
        queue=_name(document, "queue"),
        exchange=_name(document, "exchange", empty=True),
        routing_keys=_keys(document),
        reason=_reason(document),
        declared=Declared(never=_never(document), retry_after_ms=after, tag=_short(document.get("tag"), MAX_TAG)),
        error=_error(document),
        original_expiration=_short(document.get("original_expiration"), 20),
        invented_id="message_id" in document and document["message_id"] is None,
    )


def _name(document: Mapping[str, Any], member: str, *, empty: bool = False) -> str:
    value = document.get(member, "" if empty else None)
    if not isinstance(value, str) or not (value or empty) or _size(value) > MAX_NAME_BYTES:
        raise DeclarationError(f"{member!r} has to be a name of at most {MAX_NAME_BYTES} bytes")
    return value


def _keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    keys = document.get("routing_keys")
    if not isinstance(keys, list) or not 0 < len(keys) <= MAX_KEYS:
        raise DeclarationError(f"'routing_keys' has to be a list of 1 to {MAX_KEYS} keys")
    sizes = [_size(key) if isinstance(key, str) else None for key in keys]
    if None in sizes or (sizes[0] or 0) > MAX_NAME_BYTES:
        raise DeclarationError(f"'routing_keys' has to hold texts, and the first has at most {MAX_NAME_BYTES} bytes")
    return tuple(keys)  # the others are CC keys, and a frame is their only limit


def _reason(document: Mapping[str, Any]) -> str:
    reason = document.get("reason", APPLICATION)
    name = reason.removeprefix(f"{APPLICATION}:") if isinstance(reason, str) else None
    if name == APPLICATION:
        return APPLICATION
    if name is None or not _REASON.fullmatch(name):
        raise DeclarationError("'reason' has to be 1 to 64 of A-Z a-z 0-9 _ . - that begin with a letter or digit")
    return f"{APPLICATION}:{name}"


def _never(document: Mapping[str, Any]) -> bool:
    retry = document.get("retry")
    if retry not in {None, NEVER} if isinstance(retry, str | None) else True:
        raise DeclarationError("'retry' can only be \"never\"")
    return retry == NEVER


def _whole(document: Mapping[str, Any], member: str) -> int | None:
    value = document.get(member)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_RETRY_AFTER_MS:
        raise DeclarationError(f"{member!r} has to be a whole number of milliseconds, 0 to {MAX_RETRY_AFTER_MS}")
    return value


def _error(document: Mapping[str, Any]) -> dict[str, str] | None:
    """What went wrong; a description stands for the message of an error that has none."""
    given = document.get("error")
    error = given if isinstance(given, dict) else {}
    return error_of(error.get("type"), error.get("message") or document.get("description"), error.get("frame"))


def error_of(kind: object, message: object, frame: object) -> dict[str, str] | None:
    """{type, message, frame} without what is not known, each cut to its length; None where nothing is."""
    members = {
        "type": _short(kind, MAX_TYPE),
        "message": _short(message, MAX_MESSAGE),
        "frame": _short(frame, MAX_FRAME),
    }
    return {name: text for name, text in members.items() if text} or None


def _short(value: object, limit: int) -> str | None:
    if not isinstance(value, str):
        return None
    text = value.encode(errors="replace").decode()  # lone surrogates are no text
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _size(text: str) -> int:
    """In bytes. DeclarationError: it is no text; JSON can write halves of characters, which no name can hold."""
    try:
        return len(text.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        raise DeclarationError(f"{text[:40]!r} is no text") from None
