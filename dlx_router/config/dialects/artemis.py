"""A broker.xml of Apache ActiveMQ Artemis: its address-settings.

The XML is read without entities, document types or anything external: a file with a DOCTYPE is refused, and an XInclude
is reported. Source: the Artemis manual, "Message redelivery and undelivered messages" and
"Configuring addresses".
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from xml.parsers import expat

from dlx_router.config.dialects.import_result import Carried, ImportRefused, whole

ANY_WORDS, ONE_WORD = "#", "*"  # ours; Artemis's too, unless its file says others
DELIMITER: Final = "."
_WILDCARDS: Final = {"delimiter": DELIMITER, "any-words": ANY_WORDS, "single-word": ONE_WORD}
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
_ADDRESS, _EXPIRY = "dead-letter-address", "expiry-address"
_CREATES: Final = "auto-create-dead-letter-resources"
_DECLARE: Final = "declare it, of type fanout say, and bind a queue to it, else they are parked"


class Setting(NamedTuple):
    """An address-setting: its match, its line, and its keys with their texts."""

    match: str
    line: int
    texts: dict[str, str]


class BrokerFile(NamedTuple):
    """The address-settings of a file, in their order, and the files that it includes."""

    settings: list[Setting]
    includes: list[str]


def read(data: bytes, out: Carried) -> None:
    """Add the address-settings, in their order. ImportRefused where it is no such file."""
    file = _broker_file(data)
    for name in file.includes:
        out.leave(f"xi:include {name}", f"is not read; import it too: dlx-router policy import {name} --from artemis")
    for setting in out.each(file.settings):
        _setting(setting, out)


class _Reader:
    """Events of an XML parser, made into settings."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.includes: list[str] = []
        self._path: list[str] = []
        self._text: list[str] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._begin, self._end
        self.parser.CharacterDataHandler = self._text.append
        self.parser.StartDoctypeDeclHandler = self.parser.EntityDeclHandler = self._refuse

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        if len(self._path) >= MAX_DEPTH:
            raise self._refused(f"nested deeper than {MAX_DEPTH}; name the broker.xml of an Artemis broker")
        self._path.append(name.rpartition(":")[2])
        self._text.clear()
        if self._path[-1] == "include":
            self.includes.append(attributes.get("href", ""))
        if self._path[-1] == "address-setting":
            if "match" not in attributes:
                raise self._refused("an address-setting without match; write the addresses that it is for")
            self.settings.append(Setting(attributes["match"], self.parser.CurrentLineNumber, {}))

    def _end(self, _name: str) -> None:
        name, text = self._path.pop(), "".join(self._text).strip()
        inside = self._path[-1] if self._path else ""
        if inside == "address-setting":
            self.settings[-1].texts[name] = text
        elif inside == "wildcard-addresses" and text != _WILDCARDS.get(name, text):
            raise self._refused(
                f"wildcard-addresses, {name}: {text[:40]!r}; only the usual {_WILDCARDS[name]} is read: rewrite the "
                f"matches, and take wildcard-addresses out"
            )

    def _refuse(self, *_: object) -> None:
        raise self._refused("a document type or entity; write the file without")

    def _refused(self, message: str) -> ImportRefused:
        return ImportRefused(message, line=self.parser.CurrentLineNumber)


def _broker_file(data: bytes) -> BrokerFile:
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)  # noqa: FBT003 - as expat has it
    except expat.ExpatError as error:
        message = f"not XML: {expat.ErrorString(error.code)}; is --from right? Else export it again"
        raise ImportRefused(message, line=error.lineno) from None
    if not reader.settings and reader.includes:
        names = ", ".join(reader.includes)
        raise ImportRefused(f"no address-setting in it, only xi:include of {names}; import that file", line=1)
    if not reader.settings:
        raise ImportRefused("no address-setting in it; name the broker.xml of an Artemis broker", line=1)
    return BrokerFile(reader.settings, reader.includes)


def _setting(setting: Setting, out: Carried) -> None:
    match, texts = setting.match, setting.texts
    where = f"address-setting {match}"
    selector = _selector(match, where, out)
    if selector is None:
        return
    definition: dict[str, object] = {}
    for key, text in texts.items():
        _key(key, text, definition, where, out)
    if not definition and not texts.keys() & {_ADDRESS, _EXPIRY}:
        out.leave(where, "has no key about dead letters")
        return
    _address(setting, definition, out)
    if definition:
        out.add(match.replace(ANY_WORDS, "all").replace(ONE_WORD, "any"), selector, definition)


def _address(setting: Setting, definition: Mapping[str, object], out: Carried) -> None:
    """Where its dead letters go, where that is another place than in Artemis, or is not made by itself."""
    where, text = f"address-setting {setting.match}", setting.texts.get(_ADDRESS)
    creates = setting.texts.get(_CREATES, "").lower()
    if text:
        if creates != "true":
            out.leave(f"{where}, {_ADDRESS}", f"its queue; dead letters go to exchange {text} with their own keys: "
                      f"unless a wider setting creates it, {_DECLARE}")  # fmt: skip
    elif text is not None or definition.get("max-delivery-attempts", -1) != -1:
        kept = "parked (unroutable)" if creates == "false" else "kept in an auto-created DLQ"
        what = "no dead-letter-address" if text is None else "an empty dead-letter-address"
        out.leave(where, f"{what}: Artemis would delete; unless a wider setting has an address, letters are {kept}; "
                  f"set discard: true to delete them too")  # fmt: skip


def _selector(match: str, where: str, out: Carried) -> dict[str, str] | None:
    """An exact name stays as it is written. None: ours cannot say the same, which the report tells."""
    if not {ANY_WORDS, ONE_WORD} & {*match}:
        return {"queue": match}
    words = match.split(DELIMITER)
    if any({ANY_WORDS, ONE_WORD} & {*word} for word in words if word not in {ANY_WORDS, ONE_WORD}):
        out.leave(where, "mixes a word with a wildcard; write pattern: with a regular expression by hand")
        return None
    return {"match": match}


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
    elif key == _ADDRESS:
        definition |= {"dead-letter-exchange": text} if text else {}
    elif key == _EXPIRY and not text:
        out.leave(place, "is empty: Artemis would delete expired messages, also where a wider setting has such an "
                  "address; here that address holds")  # fmt: skip
    elif key == _EXPIRY:
        # What is created for rejected messages, in this setting or a wider one, is not for those that expired.
        expired = {"dead-letter-exchange": text, "auto-create-dead-letter-resources": False}
        definition["on"] = {"expired": expired}
        out.leave(place, f"its queue; expired messages go to exchange {text} with their own keys: {_DECLARE}")
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
