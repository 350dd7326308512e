"""What of a message may stand in the journal. Nothing of a body or header does unless a policy asks for it.

But of a letter that leaves its queue by retention the journal is the last place: its body is there unless a policy
forbids it.

A header or a place of the body that is named in `redact` never appears, whoever reads it; `redacted` says that it is
missing. A body that should be redacted and is not JSON is left out whole. What a letter's error says was in headers
once: it is redacted with them, whichever of them it was made of.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any, Final, Literal

from dlx_router.core import clienterrors
from dlx_router.core.condition import View
from dlx_router.core.declaration import HEADER as DECLARED
from dlx_router.core.letter import Letter
from dlx_router.core.places import NOTHING, UNREADABLE, inside, parsed, steps
from dlx_router.core.places import place as value_at
from dlx_router.core.policy import Effective
from dlx_router.journal import encoding as encoded
from dlx_router.journal.fields import FINAL_KINDS
from dlx_router.wire import table

HEAD_BYTES: Final = 1024
INLINE_BYTES: Final = 65_536  # beyond it an event would fill a batch; the message itself lies in its queue
HIDDEN: Final = "***"
RETIRED: Final = "retired"
# What each member of an error may have been made of. A record tells the error and not of which.
MADE_OF: Final = {member: (*names, DECLARED) for member, names in clienterrors.MADE_OF.items()}
Bodies = Literal["none", "hash", "head", "retired", "final", "all"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Key `journal` of a policy, and what its templates and conditions read.

    `events`: all, or final (only where a letter's way ends). `body`: none; hash; head (its first KiB); retired (whole,
    where retention takes the letter, else none); final (whole, where the way ends, else hash); all (whole). `redact`:
    header names, and JSON pointers that begin with a slash.
    """

    events: Literal["all", "final"] = "all"
    body: Bodies = "none"
    redact: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # read by the policy
    pointers: tuple[str, ...] = ()  # read by the policy

    def wants(self, kind: str) -> bool:
        """Whether an event of this kind is written."""
        return self.events == "all" or kind in FINAL_KINDS

    @property
    def is_plain(self) -> bool:
        """Whether what is `disclosed` of every letter without an error is NO_BODY, but of a retired one."""
        return self.body in {"none", RETIRED} and not self.headers and not self.pointers

    def hides(self, name: str) -> bool:
        """Whether this header or pointer is redacted. Headers by name in any case: X-Token is x-token to people."""
        return any(
            hidden == name or (hidden[:1] != "/" and hidden.casefold() == name.casefold()) for hidden in self.redact
        )


PLAIN: Final = Rule()


def rule_of(policy: Effective | None) -> Rule:
    """What a policy asks for: its key `journal` (a mapping of events, body, redact), and the headers it reads."""
    if policy is None:
        return PLAIN
    setting, template = policy.settings.get("journal"), policy.routing_key
    parts = () if template is None else template.parts
    conditions = (*policy.never_retry, *policy.retry_only)
    headers = [part[1] for part in parts if isinstance(part, tuple) and part[0] == "header"]
    headers += [name for condition in conditions for name in condition.headers]
    pointers = dict.fromkeys(place for condition in conditions for place in condition.pointers)
    asked: dict[str, Any] = {"body": RETIRED, **({} if setting is None else setting.value)}
    return Rule(headers=tuple(dict.fromkeys(headers)), pointers=tuple(pointers), **asked)


def disclosed(rule: Rule, kind: str, *, headers: bytes, body: bytes, error: Mapping[str, Any] | None = None) -> str:
    """The members that only some policies ask for, for Fragments.line. Never raises: what cannot be read is absent.

    `headers` is the payload of the header table.
    """
    hidden = {name for name in (*rule.headers, *rule.pointers) if rule.hides(name)}
    members: dict[str, Any] = {}
    if rule.headers:
        members["headers"] = _headers(headers, [name for name in rule.headers if name not in hidden])
    if rule.pointers:
        members["body_values"], gone = _places(body, [place for place in rule.pointers if place not in hidden], rule)
        hidden.update(gone)
    shown, gone = _body(rule, kind, body)
    hidden.update(gone)
    shown_error, gone = error_of(rule, error)
    hidden.update(gone)
    if hidden:
        members["redacted"] = sorted(hidden)
    if shown_error and parsed(json.dumps(shown_error, default=str).encode()) is not UNREADABLE:
        members["error"] = shown_error
    return encoded.members(members | shown)[:-1]


def error_of(rule: Rule, error: Mapping[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """What may be told of a letter's error, {} where nothing may; and the redacted headers that it may be made of."""
    members = error or {}
    gone = {name: [header for header in MADE_OF.get(name, ()) if rule.hides(header)] for name in members}
    return {name: text for name, text in members.items() if not gone[name]}, [
        header for headers in gone.values() for header in headers
    ]


def discreet(rule: Rule, letter: Letter) -> Letter:
    """The letter as it may be told: without what its error and its declared tag say of redacted headers."""
    if not rule.redact:
        return letter
    error, gone = error_of(rule, letter.error)
    if gone:
        letter = replace(letter, error=error or None)
    if letter.declared is not None and letter.declared.tag is not None and rule.hides(DECLARED):
        letter = replace(letter, declared=letter.declared._replace(tag=None))
    return letter


def redacted(rule: Rule, seen: View) -> View:
    """Return what a filter sees of a letter: what is redacted is hidden, so that no comparison reveals it."""
    if not rule.redact:
        return seen
    places = [pointer for pointer in rule.redact if pointer.startswith("/")]

    def body(pointer: str) -> Any:  # noqa: ANN401 - JSON
        document = deepcopy(seen.body(""))
        _hide(document, places)
        value = value_at(document, pointer)
        return None if value is NOTHING else value

    return View(
        seen.variables,
        lambda name: HIDDEN if rule.hides(name) else seen.header(name),
        body if places else seen.body,
    )


def _headers(headers: bytes, names: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        entries = table.entries(headers)
        for name in names:
            at = entries.get(name.encode(errors="surrogateescape"))
            if at is not None:
                values[name] = _text(plain(chr(headers[at[1]]), table.decode_value(headers, at[1])))
    except table.TableError:
        pass  # such a message is no letter: it goes to quarantine
    return values


def plain(tag: str, value: Any) -> Any:  # noqa: ANN401 - a header is of any type
    """A header's value as JSON has it. What a template sees as nothing is no scalar here either."""
    match tag, value:
        case "A", _:
            return [plain(kind, item) for kind, item in value]
        case "F", _:
            return {name: plain(kind, item) for name, kind, item in value}
        case "x", _:
            return {"base64": base64.b64encode(value).decode()}
        case _, bytes():
            return value.decode(errors="surrogateescape")
    exact = not isinstance(value, Decimal) and not (isinstance(value, float) and not isfinite(value))
    return value if exact else str(value)  # JSON has neither infinities nor a second kind of fraction


def _text(value: Any) -> str:  # noqa: ANN401 - what a place of a body holds
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# -- the body ---------------------------------------------------------------------------------------------------------


def _body(rule: Rule, kind: str, body: bytes) -> tuple[dict[str, Any], list[str]]:
    """The members about the body, and what was taken out of it."""
    mode = rule.body
    if mode == RETIRED:
        mode = "all" if kind == RETIRED else "none"
    elif mode == "final":
        mode = "all" if kind in FINAL_KINDS else "hash"
    if mode == "none":
        return {"body_mode": "none"}, []
    digest = sha256(body).hexdigest()
    if mode == "hash":
        return {"body_mode": "hash", "body_sha256": digest}, []
    places = [pointer for pointer in rule.redact if pointer.startswith("/")]
    shown, gone = without(body, places) if places else (body, [])
    if shown is None:
        return {"body_mode": "none"}, places
    length = INLINE_BYTES if mode == "all" else HEAD_BYTES
    cut = "head" if len(shown) > length else "inline"
    return {"body_mode": cut, "body_sha256": digest, "body": base64.b64encode(shown[:length]).decode()}, gone


def without(body: bytes, places: Iterable[str]) -> tuple[bytes | None, list[str]]:
    """The body with these values hidden, and those that were there; None where nobody knows what it says."""
    document = parsed(body, unique=True)
    if document is UNREADABLE:
        return None, []
    gone = _hide(document, places)
    return (_text(document).encode(), gone) if gone else (body, [])


def _hide(document: Any, places: Iterable[str]) -> list[str]:  # noqa: ANN401 - JSON
    """Hide these values in the document; return the places that were there."""
    gone: list[str] = []
    for place in places:
        *way, last = steps(place)
        parent = document
        for step in way:
            parent = inside(parent, step)
        if inside(parent, last) is not NOTHING:
            parent[int(last) if isinstance(parent, list) else last] = HIDDEN
            gone.append(place)
    return gone


def _places(body: bytes, places: Iterable[str], rule: Rule) -> tuple[dict[str, str], list[str]]:
    """The values at these places without what is redacted inside them, and what that was."""
    shown, gone = without(body, [pointer for pointer in rule.redact if pointer.startswith("/")])
    document = parsed(shown) if shown is not None else UNREADABLE
    values = {}
    for place in places:
        value = value_at(document, place)
        if value is not NOTHING and value is not UNREADABLE:
            values[place] = _text(value)
    return values, gone
