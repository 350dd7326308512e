"""What an import gives: policies in our language, and what could not be carried over."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dlx_router.config.findings import Report
from dlx_router.config.language import yaml_tree
from dlx_router.config.language.yaml_tree import Items, Node, Scalar

MAX_BYTES: Final = 16 << 20
MAX_POLICIES: Final = 10_000
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./:-]*")
_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class ImportRefused(Exception):
    """The file cannot be read as what it was said to be: where, what, what now.

    `line` counts from 1; 0: that of the object that is being read (`Carried.line`).
    """

    def __init__(self, message: str, *, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Placed(dict[str, Any]):
    """A JSON object that knows its line."""

    line = 0


@dataclass(frozen=True, slots=True)
class Left:
    """Something that was not carried over: where it stood, and why, and what to do."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(slots=True)
class Carried:
    """Policies as plain values, and the report, in the order of the source."""

    policies: list[dict[str, Any]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # of each policy in the file, 0 where it is not known
    line: int = 0  # of the object that is being read
    _names: set[str] = field(default_factory=set)

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """Iterate over objects of the file and note their lines."""
        for item in items:
            self.line = getattr(item, "line", self.line)
            yield item

    def add(self, name: str, selector: Mapping[str, str], definition: Mapping[str, Any], **more: Any) -> None:
        """Add a policy; its name is made plain and unique."""
        if len(self.policies) >= MAX_POLICIES:
            raise ImportRefused(f"more than {MAX_POLICIES} policies; import them in parts")
        for key, value in {**selector, **more, **definition}.items():
            if value is None:
                raise ImportRefused(f"policy {name}, {key}: null; write a value, or leave the key out")
        self.lines.append(self.line)
        policy: dict[str, Any] = {"name": self._unique(name), **more, **selector}
        if definition:
            policy["definition"] = dict(definition)
        self.policies.append(policy)

    def take(self, names: Iterable[str]) -> None:
        """Names that are taken already."""
        self._names.update(names)

    def leave(self, where: str, why: str) -> None:
        """Note what was not carried over."""
        self.left.append(Left(where, why))

    def _unique(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "policy"
        unique, number = plain, 1
        while unique in self._names:
            number += 1
            unique = f"{plain}-{number}"
        self._names.add(unique)
        return unique


def as_yaml(carried: Carried, origin: str) -> str:
    """A policy file: the policies, and the report as comments above them."""
    head = [f"Imported from {origin}.", *(f"Not carried over: {item}" for item in carried.left)]
    return policy_file(head, [(policy, ()) for policy in carried.policies])


def policy_file(head: Iterable[str], policies: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> str:
    """A policy file: comments at its head, and policies as plain values, each below the comments about it."""
    lines = [f"# {printable(comment)}".rstrip() for comment in head]
    lines += ["version: 1", "policies:" if policies else "policies: []"]
    for policy, comments in policies:
        lines += [f"  # {printable(comment)}".rstrip() for comment in comments]
        lead = "  - "
        for key, value in policy.items():
            lines += _lines(key, value, lead)
            lead = "    "
    return "\n".join(lines) + "\n"


def written(definition: Mapping[str, Any]) -> list[str]:
    """The lines of a definition by itself."""
    return [line for key, value in definition.items() for line in _lines(key, value, "")]


def _lines(key: str, value: object, lead: str) -> list[str]:
    if isinstance(value, Mapping) and key in {"definition", "on"}:
        inner = " " * (len(lead) + 2)
        return [f"{lead}{key}:", *(line for name, item in value.items() for line in _lines(name, item, inner))]
    return [f"{lead}{word(key)}: {_value(value)}"]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{word(str(key))}: {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return word(str(value))


def word(text: str) -> str:
    """The text as YAML: plain where nothing can misread it, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not text.endswith(":"):
        return text
    return json.dumps(text, ensure_ascii=True)


def printable(text: str) -> str:
    """The text in one line, without what a terminal would obey: files come from anybody."""
    return "".join(char if char.isprintable() else " " for char in text)


def parsed_json(data: bytes) -> Any:
    """Parse JSON, every object with its line. ImportRefused where it is none, or too deep.

    It is read as YAML, of which JSON is a part, because that reader knows lines.
    """
    if not data.strip():
        raise ImportRefused("the file is empty; export it again", line=1)
    try:
        json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg} (column {error.colno}); is --from right? Else export it again"
        raise ImportRefused(message, line=error.lineno) from None
    except (ValueError, RecursionError):
        pass  # reported below, with its line
    report = Report("")
    tree = yaml_tree.parse(_PAIR.sub(_joined, data), report, max_bytes=MAX_BYTES)
    if tree is None or report.findings:
        first = report.findings[0]
        message = f"not JSON: {first.message.removeprefix('not YAML: ')}; is --from right? Else export it again"
        raise ImportRefused(message, line=first.line)
    return _value_of(tree)


def _joined(pair: re.Match[bytes]) -> bytes:
    """A character that JSON writes as two halves."""
    return str(json.loads(f'"{pair[0].decode()}"')).encode()


def _value_of(node: Node) -> Any:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [_value_of(item) for item in node.items]
    placed = Placed({key.text: _value_of(value) for key, value in node.pairs})
    placed.line = node.line
    return placed


def mapping(value: object, what: str) -> Placed:
    """The value as an object; ImportRefused where it is another thing."""
    if not isinstance(value, Placed):
        raise ImportRefused(f"{what}: expected an object, found {kind_of(value)}; is --from right?")
    return value


def kind_of(value: object) -> str:
    """What a person would call a value of JSON."""
    names = {Placed: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def whole(value: object) -> int | None:
    """A whole number, written as one or as text; None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip(), re.ASCII) else None
