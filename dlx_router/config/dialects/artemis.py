"""A broker.xml of Apache ActiveMQ Artemis: its address-settings, and which addresses their matches name.

The XML is read without entities, document types or anything external: a file with a DOCTYPE is refused, and an XInclude
is reported. Source: the Artemis manual, "Message redelivery and undelivered messages", "Understanding the Wildcard
Syntax" and "Configuring addresses".
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.parsers import expat

from dlx_router.config.dialects.import_result import Carried, ImportRefused, whole
from dlx_router.core.policy import words_match

ANY_WORDS, ONE_WORD = "#", "*"  # ours; Artemis's too, unless its file says others
OURS: Final = frozenset({ANY_WORDS, ONE_WORD})
DELIMITER: Final = "."
_ANY: Final = "\0"  # stands for any word
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
_SAME: Final = "set discard: true to do the same"
_DECLARE: Final = "declare it, of type fanout say, and bind a queue to it, else they are parked"
_BY_HAND: Final = "write pattern: with a regular expression by hand"


class Wildcards(NamedTuple):
    """`wildcard-addresses` of a file: what stands between the words of an address, and for words of it."""

    delimiter: str = DELIMITER
    any_words: str = ANY_WORDS
    single_word: str = ONE_WORD

    def apart_by(self, match: str) -> str:
        """What its words are apart by; slashes are taken for it too where a match has no dots."""
        return "/" if self.delimiter == DELIMITER and DELIMITER not in match else self.delimiter

    def words_of(self, match: str) -> tuple[str, ...] | None:
        """The words of a match, our wildcards in place of its; None where one is mixed with a word."""
        ours = {self.any_words: ANY_WORDS, self.single_word: ONE_WORD}
        words = match.split(self.apart_by(match))
        if any(OURS.union(ours) & {*word} for word in words if word not in ours):
            return None
        return tuple(ours.get(word, word) for word in words)

    def are_in(self, match: str) -> bool:
        """The match may name more than one address."""
        return self.any_words in match or self.single_word in match


def covers(wider: Sequence[str], narrow: Sequence[str]) -> bool:
    """Each address that the narrow words name is one that the wider ones name: no, one and two words for each #."""
    fills = ({ONE_WORD: [_ANY], ANY_WORDS: [_ANY] * many} for many in range(3))
    named = ([part for word in narrow for part in fill.get(word, [word])] for fill in fills)
    return all(words_match(wider, words) for words in named)


class Setting(NamedTuple):
    """An address-setting: its match, its line, and its keys with their texts."""

    match: str
    line: int
    texts: dict[str, str]


class BrokerFile:
    """The address-settings of a file, in their order, and its wildcards."""

    def __init__(self, settings: list[Setting], wildcards: Wildcards, includes: list[str]) -> None:
        self.settings, self.wildcards, self.includes = settings, wildcards, includes
        words = [(wildcards.words_of(setting.match), setting) for setting in settings]
        self._wide = [(there, setting) for there, setting in words if there and OURS & {*there}]

    def inherited(self, setting: Setting, key: str) -> str:
        """What Artemis takes for a key that the setting lacks: the nearest wider setting's; "" for nothing."""
        words, text, nearest = self.wildcards.words_of(setting.match), "", None
        for wide, other in self._wide if words else ():
            is_wider = key in other.texts and other is not setting and covers(wide, words or ())
            if is_wider and (nearest is None or covers(nearest, wide)):
                nearest, text = wide, other.texts[key]
        return text


def read(data: bytes, out: Carried) -> None:
    """Add the address-settings, in their order. ImportRefused where it is no such file."""
    file = _broker_file(data)
    for name in file.includes:
        out.leave(f"xi:include {name}", f"is not read; import it too: dlx-router policy import {name} --from artemis")
    for setting in out.each(file.settings):
        _setting(setting, file, out)


class _Reader:
    """Events of an XML parser, made into settings."""

    def __init__(self) -> None:
        self.settings: list[Setting] = []
        self.wildcards: dict[str, str] = {}
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
        elif inside == "wildcard-addresses" and name.replace("-", "_") in Wildcards._fields:
            if len(text) != 1:
                raise self._refused(f"wildcard-addresses, {name}: {text[:40]!r} is no character; write one")
            self.wildcards[name.replace("-", "_")] = text

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
    return BrokerFile(reader.settings, Wildcards(**reader.wildcards), reader.includes)


def _setting(setting: Setting, file: BrokerFile, out: Carried) -> None:
    match, texts = setting.match, setting.texts
    where = f"address-setting {match}"
    selector = _selector(match, file.wildcards, where, out)
    if selector is None:
        return
    definition: dict[str, object] = {}
    for key, text in texts.items():
        _key(key, text, definition, where, out)
    if not definition and not texts.keys() & {_ADDRESS, _EXPIRY}:
        out.leave(where, "has no key about dead letters")
        return
    _address(setting, file, definition, out)
    if definition:
        named = match.replace(file.wildcards.any_words, "all").replace(file.wildcards.single_word, "any")
        out.add(named, selector, definition)


def _address(setting: Setting, file: BrokerFile, definition: Mapping[str, object], out: Carried) -> None:
    """Where its dead letters go, where that is another place than in Artemis, or is not made by itself."""
    where, text = f"address-setting {setting.match}", setting.texts.get(_ADDRESS)
    creates = setting.texts.get(_CREATES, "").lower()
    if text:
        if (creates or file.inherited(setting, _CREATES).lower()) != "true":
            out.leave(f"{where}, {_ADDRESS}", f"its queue; dead letters go to exchange {text} with their own keys: "
                      f"{_DECLARE}")  # fmt: skip
    elif text is not None:
        kept = "parked (unroutable)" if creates == "false" else "kept in an auto-created DLQ"
        out.leave(f"{where}, {_ADDRESS}", "is empty: Artemis would delete, also where a wider setting has an address; "
                  f"here that address holds, and without one letters are {kept}; {_SAME}")  # fmt: skip
    elif not file.inherited(setting, _ADDRESS):
        _without_address(creates, definition, where, out)


def _without_address(creates: str, definition: Mapping[str, object], where: str, out: Carried) -> None:
    """Artemis deletes then, whatever else is written."""
    if creates == "false":
        out.leave(where, "no dead-letter-address, and no queue is created: Artemis would delete; unless a wider "
                  "setting has an address, letters are parked (unroutable); take auto-create-dead-letter-resources: "
                  f"false out to keep them in an auto-created DLQ, or {_SAME}")  # fmt: skip
    elif creates != "true" and definition.get("max-delivery-attempts", -1) != -1:
        out.leave(where, "no dead-letter-address: Artemis would delete; letters are kept in an auto-created DLQ; "
                  f"{_SAME}")  # fmt: skip


def _selector(match: str, wildcards: Wildcards, where: str, out: Carried) -> dict[str, str] | None:
    """An exact name stays as it is written; in patterns words are apart by dots, here and by default in Artemis.

    None: ours cannot say the same, which the report tells.
    """
    if not wildcards.are_in(match):
        return {"queue": match}
    words, apart = wildcards.words_of(match), wildcards.apart_by(match)
    if words is None:
        out.leave(where, f"mixes a word with a wildcard; {_BY_HAND}")
        return None
    if any("." in word for word in words):
        out.leave(where, f"has dots in its words, which are apart by {apart} there and by dots here; {_BY_HAND}")
        return None
    ours = ".".join(words)
    if apart != "." and len(words) > 1:
        out.leave(where, f"names queues whose words are apart by dots ({ours}); for queues whose words are apart by "
                  f"{apart} {_BY_HAND}")  # fmt: skip
    return {"match": ours}


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
