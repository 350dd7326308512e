"""Strict YAML: text → a tree whose every node knows its line.

YAML has more power than a policy needs, and each excess is a way to be misread: `on` would be a boolean, an alias a
bomb, a tag code, a second equal key a silent loss. So the tree is built from PyYAML's events by ourselves: only `true`
and `false` are booleans (`on:` is the word "on"), and aliases, anchors, tags, merge keys, further documents and equal
keys are findings. Nothing here recurses, so no depth of input can exhaust the stack.
"""

import codecs
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dlx_router.config.findings import DUPLICATE_KEY, REFUSED_YAML, SYNTAX, Report, shown

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 20

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "~": None, "": None}
# Words of libyaml and of PyYAML.
_ADVICE: Final = {
    "expected alphabetic or numeric character": "a * or & begins a value: put it in quotes",
    "cannot start any token": "put the value in quotes",
    "control characters": "take them out; is it a text file?",
    "special characters": "take them out; is it a text file?",
    "end of stream": "close the quote",
    "could not find expected ':'": "write key: value",
    "mapping values are not allowed": "indent keys of one mapping alike, and put a value with a colon in quotes",
    "expected ',' or": "close the bracket",
    "unknown escape": "write single quotes, in which \\ is itself",
}
_LOOK: Final = "look at indentation, quotes and brackets there"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word as it was written; `plain` means without quotes. `column` counts from 1 and is that of its first mark."""

    text: str
    plain: bool
    line: int
    column: int = 0
    style: str = ""

    @property
    def value(self) -> str | int | float | bool | None:
        """What the word means; quoted words are always text."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INTEGER.fullmatch(self.text):
            return int(self.text)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping; every key is a distinct word."""

    pairs: tuple[tuple[Scalar, "Node"], ...]
    line: int


Node = Scalar | Items | Pairs


def described(node: Node) -> str:
    """What a person would call the node, to say what was found instead."""
    match node:
        case Items():
            return "a list"
        case Pairs():
            return "a mapping"
        case Scalar() if node.value is None:
            return "nothing"
        case Scalar() if node.plain and isinstance(node.value, int | float):
            return node.text
        case Scalar():
            return shown(node.text)


def parse(data: bytes, report: Report, *, max_bytes: int = MAX_BYTES) -> Node | None:
    """The tree of the only document, or None where the report says why there is none; no document is an empty word.

    Never raises.
    """
    if len(data) > max_bytes:
        report.error(REFUSED_YAML, 1, f"the file has {len(data)} bytes, at most {max_bytes} are possible: split it")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        line = 1 if is_utf16 else data.count(b"\n", 0, error.start) + 1
        what = "the file is UTF-16" if is_utf16 else f"byte {error.start} is not UTF-8"
        report.error(SYNTAX, line, f"{what}; save the file as UTF-8")
        return None
    builder = _Builder(report)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except _Refused:
        return None
    except yaml.YAMLError as error:
        report.error(SYNTAX, *_explained(error, text))
        return None
    except (ValueError, OverflowError) as error:  # PyYAML lets those of chr() and int() through
        report.error(SYNTAX, 1, f"not YAML: {error}")
        return None
    return None if builder.refused else builder.root or Scalar("", plain=True, line=1)


def _explained(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """The line, and what is wrong there, where it began, and what to do."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable")
    if mark is None:
        before = text.encode()[: getattr(error, "position", None) or 0]
        return before.count(b"\n") + 1, f"not YAML: {problem}; {_advice(problem, '')}"
    begun = getattr(error, "context_mark", None)
    since = f" of what begins in line {begun.line + 1}" if begun is not None and begun.line != mark.line else ""
    line = text.splitlines()[mark.line : mark.line + 1]
    sign = line[0][mark.column : mark.column + 1] if line else ""
    return mark.line + 1, f"not YAML: {problem} (column {mark.column + 1}){since}; {_advice(problem, sign)}"


def _advice(problem: str, sign: str) -> str:
    if sign == "\t":
        return "that is a tab: indent with spaces"
    return next((advice for words, advice in _ADVICE.items() if words in problem), _LOOK)


class _Refused(Exception):
    """Nothing more can be learned from this file."""


class _Open:
    """A list or mapping whose end has not come; `keys` is None for a list."""

    def __init__(self, line: int, *, mapping: bool) -> None:
        self.line = line
        self.nodes: list[Node] = []
        self.keys: dict[str, Scalar] | None = {} if mapping else None
        self.key: Scalar | None = None
        self.pairs: list[tuple[Scalar, Node]] = []
        self.repeated = False


class _Builder:
    """Events in, tree out."""

    def __init__(self, report: Report) -> None:
        self.root: Node | None = None
        self.refused = False
        self._report = report
        self._documents = 0
        self._open: list[_Open] = []

    def take(self, event: Any) -> None:
        """Build on; raises _Refused where going on makes no sense."""
        line = event.start_mark.line + 1
        match event:
            case yaml.AliasEvent():
                self._refuse(line, f"alias *{event.anchor}: policies are written out; repeat the value")
                self._add(Scalar("", plain=True, line=line))
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop(line, "a second document (---): put its policies into a file of their own")
            case yaml.ScalarEvent():
                self._check(event, line)
                plain, mark = event.style in {None, ""}, event.start_mark
                column = mark.column + 1 if mark is not None else 0
                self._add(Scalar(event.value, plain=plain, line=line, column=column, style=event.style or ""))
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check(event, line)
                self._begin(_Open(line, mapping=isinstance(event, yaml.MappingStartEvent)))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case _:
                pass  # stream and document ends

    def _check(self, event: Any, line: int) -> None:
        if event.tag is not None:
            self._refuse(line, f"tag {shown(event.tag)}: policies are plain words, numbers, lists and mappings")
        if event.anchor is not None:
            self._refuse(line, f"anchor &{event.anchor}: policies are written out; repeat the value")

    def _begin(self, opened: _Open) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and top.keys is not None and top.key is None:
            self._stop(opened.line, "a list or mapping as a key: a key is a word")
        if len(self._open) >= MAX_DEPTH:
            self._stop(opened.line, f"nested deeper than {MAX_DEPTH}")
        self._open.append(opened)

    def _end(self) -> None:
        done = self._open.pop()
        if done.keys is None:
            self._add(Items(tuple(done.nodes), done.line))
        else:
            self._add(Pairs(tuple(done.pairs), done.line))

    def _add(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        top = self._open[-1]
        if top.keys is None:
            top.nodes.append(node)
        elif top.key is None:
            assert isinstance(node, Scalar)
            self._key(top, top.keys, node)
        else:
            if not top.repeated:
                top.pairs.append((top.key, node))
            top.key = None

    def _key(self, top: _Open, keys: dict[str, Scalar], key: Scalar) -> None:
        if key.plain and key.text == "<<":
            self._refuse(key.line, "merge key <<: policies are written out; repeat the keys")
        first = keys.setdefault(key.text, key)
        top.key, top.repeated = key, first is not key
        if top.repeated:
            message = f"key {shown(key.text)} is written twice, first in line {first.line}; keep one"
            self._report.error(DUPLICATE_KEY, key.line, message)

    def _refuse(self, line: int, message: str) -> None:
        self.refused = True
        self._report.error(REFUSED_YAML, line, message)

    def _stop(self, line: int, message: str) -> None:
        self._refuse(line, message)
        raise _Refused
