"""A broker.xml of Apache ActiveMQ Artemis: its address-settings.

The XML is read without entities, document types or anything external: a file with a DOCTYPE is refused. Source: the
Artemis manual, "Message redelivery and undelivered messages".
"""

import re
from collections.abc import Mapping
from typing import Final
from xml.parsers import expat

from dlx_router.config.dialects.import_result import Carried, ImportRefused, whole

MAX_DEPTH: Final = 50
_NUMBERS: Final = {"redelivery-delay": int, "max-redelivery-delay": int, "redelivery-delay-multiplier": float,
                   "redelivery-collision-avoidance-factor": float}  # fmt: skip
_NOT_NEEDED: Final = {
    "max-redelivery-records": "is not needed: the count travels in the letter",
    "persist-delivery-count-before-delivery": "is not needed: the count travels in the letter; quorum queues count "
    "crashes, classic queues cannot (docs/limits.md)",
    "auto-delete-dead-letter-resources": "write auto-delete-dead-letter-queue-after with dead-letter-queue-type: "
    "classic",
    "auto-create-expiry-resources": "write auto-create-dead-letter-resources: true and dead-letter-queue-prefix: EXP. "
    "under on: expired: for a queue of expired messages for each queue",
}
_RENAMED: Final = frozenset({"dead-letter-queue-prefix", "dead-letter-queue-suffix"})
_WILDCARDS: Final = re.compile(r"(^|\.)([^.]*[*#][^.]+|[^.]+[*#][^.]*)(\.|$)")


def read(data: bytes) -> Carried:
    """The address-settings, in their order. ImportRefused where it is no such file."""
    settings = _settings(data)
    out = Carried()
    for match, line, texts in settings:
        try:
            _setting(match, texts, out)
        except ImportRefused as error:
            raise ImportRefused(str(error), line=line) from None
    return out


def _settings(data: bytes) -> list[tuple[str, int, dict[str, str]]]:
    """Each address-setting: its match, its line, and its keys with their texts."""
    settings: list[tuple[str, int, dict[str, str]]] = []
    path: list[str] = []
    text: list[str] = []

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        if len(path) >= MAX_DEPTH:
            raise _refused(parser, f"nested deeper than {MAX_DEPTH}; name the broker.xml of an Artemis broker")
        path.append(name.rpartition(":")[2])
        text.clear()
        if path[-1] == "address-setting":
            if "match" not in attributes:
                raise _refused(parser, "an address-setting without match; write the addresses that it is for")
            settings.append((attributes["match"], parser.CurrentLineNumber, {}))

    def end(_name: str) -> None:
        name = path.pop()
        if path and path[-1] == "address-setting":
            settings[-1][2][name] = "".join(text).strip()

    def refuse(*_: object) -> None:
        raise _refused(parser, "a document type or entity; write the file without")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003 - as expat has it
    except expat.ExpatError as error:
        message = f"not XML: {expat.ErrorString(error.code)}; is --from right? Else export it again"
        raise ImportRefused(message, line=error.lineno) from None
    if not settings:
        raise ImportRefused("no address-setting in it; name the broker.xml of an Artemis broker", line=1)
    return settings


def _refused(parser: expat.XMLParserType, message: str) -> ImportRefused:
    return ImportRefused(message, line=parser.CurrentLineNumber)


def _setting(match: str, texts: Mapping[str, str], out: Carried) -> None:
    where = f"address-setting {match}"
    words = match.replace("/", ".") if "." not in match else match
    if _WILDCARDS.search(words):
        out.leave(where, "mixes a word with a wildcard; write pattern: with a regular expression by hand")
        return
    definition: dict[str, object] = {}
    for key, text in texts.items():
        _key(key, text, definition, where, out)
    if not definition:
        out.leave(where, "has no key about dead letters")
        return
    if not texts.get("dead-letter-address"):
        _without_address(texts, definition, where, out)
    out.add(match.replace("#", "all").replace("*", "any"), _selector(match, words, where, out), definition)


def _without_address(texts: Mapping[str, str], definition: Mapping[str, object], where: str, out: Carried) -> None:
    """Artemis deletes then, whatever else is written."""
    creates = texts.get("auto-create-dead-letter-resources", "").lower()
    same = "set discard: true to do the same"
    if creates == "false":
        out.leave(where, "no dead-letter-address, and no queue is created: Artemis would delete; unless a wider "
                  "setting has an address, letters are parked (unroutable); take auto-create-dead-letter-resources: "
                  f"false out to keep them in an auto-created DLQ, or {same}")  # fmt: skip
    elif creates != "true" and definition.get("max-delivery-attempts", -1) != -1:
        out.leave(where, "no dead-letter-address: Artemis would delete; letters are kept in an auto-created DLQ; "
                  f"{same}")  # fmt: skip


def _selector(match: str, words: str, where: str, out: Carried) -> dict[str, str]:
    """An exact name stays as it is written; in patterns words are apart by dots, here and by default in Artemis."""
    if not set(words) & {"*", "#"}:
        return {"queue": match}
    if words != match:
        out.leave(where, f"names queues whose words are apart by dots ({words}); for queues that are called with "
                  "slashes write pattern: with a regular expression by hand")  # fmt: skip
    return {"match": words}


def _key(key: str, text: str, definition: dict[str, object], where: str, out: Carried) -> None:
    place = f"{where}, {key}"
    if key == "max-delivery-attempts":
        number = whole(text)
        if number == 0:
            out.leave(place, "0 is silently infinite in Artemis; carried over as -1")
            number = -1
        _number(number, key, text, definition, place, out)
    elif key in _NUMBERS:
        _number(_parsed(text, _NUMBERS[key]), key, text, definition, place, out)
    elif key == "dead-letter-address" and text:
        definition["dead-letter-exchange"] = text
    elif key == "expiry-address" and text:
        # What is created for rejected messages, in this setting or a wider one, is not for those that expired.
        expired = {"dead-letter-exchange": text, "auto-create-dead-letter-resources": False}
        definition["on"] = {"expired": expired}
        out.leave(place, f"its queue; expired messages go to exchange {text} with their own keys: declare it, of type "
                  "fanout say, and bind a queue to it, else they are parked")  # fmt: skip
    elif key in _RENAMED:
        definition[key] = text
    elif key == "auto-create-dead-letter-resources":
        definition[key] = text.lower() == "true"
    elif key == "expiry-delay":
        out.leave(place, "is the TTL of messages without one; write message-ttl, which holds for all")
    else:
        out.leave(place, _NOT_NEEDED.get(key, "is not about dead letters"))


def _number(number: float | None, key: str, text: str, definition: dict[str, object], place: str, out: Carried) -> None:
    if number is None:
        raise ImportRefused(f"{place}: {text[:40]!r} is no number; write one")
    if key == "max-delivery-attempts" and number < -1:
        out.leave(place, f"{number:g} is no number of attempts; left out")
    elif number < 0 and key == "max-redelivery-delay":
        out.leave(place, "-1 is 10 × redelivery-delay, here too")
    elif number < 0 and key != "max-delivery-attempts":
        out.leave(place, f"{number:g} is below 0; left out")
    else:
        definition[key] = number


def _parsed(text: str, kind: type[int] | type[float]) -> float | None:
    if kind is int:
        return whole(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII) else None
