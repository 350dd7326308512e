"""Parsers: a node → one value, or Rejected. They compose, and none of them knows where in a policy it is used.

Each says in JSON Schema what it takes, for editors. A schema may take what the parser refuses, never the reverse.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.config.findings import BAD_VALUE, nearest, shown
from dlx_router.config.language.yaml_tree import Items, Node, Pairs, Scalar, described
from dlx_router.config.units import MAX_DURATION_MS, MAX_SIZE_BYTES, duration_ms, size_bytes

Schema = Mapping[str, Any]
MAX_NAME_BYTES: Final = 255  # a short string of AMQP: names of exchanges and queues, routing keys
_LAST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parser:
    """Node → value, or Rejected."""

    read: Callable[[Node], Any]
    schema: Schema

    def __call__(self, node: Node) -> Any:
        """The value of the node."""
        return self.read(node)


def takes(schema: Schema) -> Callable[[Callable[[Node], Any]], Parser]:
    """Make a function a parser that takes what the schema says."""
    return lambda read: Parser(read, schema)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at a line."""

    line: int
    message: str
    code: str = BAD_VALUE
    column: int = 0


class Rejected(Exception):
    """The node is no such value; `problems` say why, each with its line."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(problem.message for problem in problems))


def rejected(node: Node, message: str) -> Rejected:
    """One problem at the node's line."""
    return Rejected(Problem(node.line, message))


def unexpected(node: Node, wanted: str) -> Rejected:
    """`expected …, found …`."""
    return rejected(node, f"expected {wanted}, found {described(node)}")


def text(*, empty: bool = False, max_bytes: int = MAX_NAME_BYTES) -> Parser:
    """Text of at most so many bytes. Numbers and booleans are refused, since `1.10` and `1.1` would be one name."""

    @takes({"type": "string", "minLength": 0 if empty else 1, "maxLength": max_bytes})
    def parse(node: Node) -> str:
        if not isinstance(node, Scalar) or node.value is None:
            raise unexpected(node, "text")
        if not isinstance(node.value, str):
            raise rejected(node, f'expected text, found {described(node)}; write it in quotes: "{node.text}"')
        if not node.text and not empty:
            raise rejected(node, "must not be empty")
        if (size := len(node.text.encode())) > max_bytes:
            raise rejected(node, f"has {size} bytes, at most {max_bytes} are possible; write a shorter one")
        return node.text

    return parse


@takes({"type": "string", "minLength": 1, "maxLength": 128})
def name(node: Node) -> str:
    """A word for people, logs and metrics: printable, at most 128 bytes."""
    written: str = text(max_bytes=128)(node)
    if not written.isprintable():
        raise rejected(node, f"{shown(written)} has characters that cannot be printed; take them out")
    return written


@takes({"type": "boolean"})
def boolean(node: Node) -> bool:
    """`true` or `false`, nothing else."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    raise rejected(node, f"expected true or false, found {described(node)}")


def integer(low: int, high: int, *, also: int | None = None, wanted: str = "") -> Parser:
    """A whole number in low..high, or `also`."""
    wanted = wanted or f"a whole number in {low}..{high}"
    within = {"type": "integer", "minimum": low, "maximum": high}

    @takes(within if also is None else {"anyOf": [within, {"const": also}]})
    def parse(node: Node) -> int:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int) or not (low <= value <= high or value == also):
            raise unexpected(node, wanted)
        return value

    return parse


@takes({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _LAST}, {"const": -1}]})
def attempts(node: Node) -> int:
    """Deliveries, the first included; −1 is without limit. Zero is refused, since Artemis takes it as infinite."""
    if isinstance(node, Scalar) and node.value == 0 and not isinstance(node.value, bool):
        raise rejected(
            node,
            "0 is no number of deliveries (Artemis silently takes it as infinite); write -1 for no limit, "
            "or 1 for a single delivery without retries",
        )
    return int(integer(1, _LAST, also=-1, wanted="a number of deliveries: 1 or more, or -1 for no limit")(node))


def number(low: float, high: float, wanted: str, *, above: bool = False) -> Parser:
    """A finite number in low..high; `above` excludes `low` itself."""

    @takes({"type": "number", "exclusiveMinimum" if above else "minimum": low, "maximum": high})
    def parse(node: Node) -> float:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise unexpected(node, wanted)
        if not low <= value <= high or (above and value == low):
            raise unexpected(node, wanted)
        return float(value)

    return parse


def _quantity(what: str, wanted: str, read: Callable[[int | str], int], most: int, units: str) -> Parser:
    """A whole number, or text with a unit."""
    text = rf"^[0-9]{{1,18}}(\.[0-9]{{1,9}})? ?({units})$"

    @takes({"anyOf": [{"type": "integer", "minimum": 0, "maximum": most}, {"type": "string", "pattern": text}]})
    def parse(node: Node) -> int:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise unexpected(node, wanted)
        try:
            return read(value)
        except ValueError as error:
            raise rejected(node, f"{described(node)} is no {what}: {error}") from None

    return parse


_DURATION: Final = 'a duration: milliseconds or "250ms", "5s", "10m", "1h", "7d"'
_SIZE: Final = 'a size: bytes or "64KiB", "10MiB", "1GiB"'
duration: Final = _quantity("duration", _DURATION, duration_ms, MAX_DURATION_MS, "ms|s|m|h|d")
size: Final = _quantity("size", _SIZE, size_bytes, MAX_SIZE_BYTES, "B|KiB|MiB|GiB|TiB")


def above_zero(parser: Parser, why: str) -> Parser:
    """As the parser, without 0; `why` says what 0 would mean."""
    return _unless(lambda value: not value, {"const": 0}, parser, why)


def at_least(low: int, parser: Parser, why: str) -> Parser:
    """As the parser, from `low` on; `why` says what less would mean."""
    return _unless(lambda value: value < low, {"type": "integer", "maximum": low - 1}, parser, why)


def _unless(is_bad: Callable[[Any], bool], bad: dict[str, Any], parser: Parser, why: str) -> Parser:
    @takes({**parser.schema, "not": bad})
    def parse(node: Node) -> Any:
        value = parser(node)
        if is_bad(value):
            raise rejected(node, f"{described(node)} {why}")
        return value

    return parse


def one_of(*choices: str) -> Parser:
    """One of a few words."""

    @takes({"enum": [str(choice) for choice in choices]})
    def parse(node: Node) -> str:
        value = node.text if isinstance(node, Scalar) else None
        if value in choices:
            return str(value)
        hint = nearest(value, choices) if value else ""
        raise rejected(node, f"expected {alternatives(choices)}, found {described(node)}{hint}")

    return parse


def alternatives(choices: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def list_of(item: Parser, wanted: str, *, max_items: int = 100) -> Parser:
    """A list, each item by the same parser; the problems of all items are told."""

    @takes({"type": "array", "items": item.schema, "maxItems": max_items})
    def parse(node: Node) -> tuple[Any, ...]:
        if not isinstance(node, Items):
            raise unexpected(node, wanted)
        if len(node.items) > max_items:
            raise rejected(node, f"has {len(node.items)} items, at most {max_items} are possible")
        return _all([(item, entry) for entry in node.items])

    return parse


def distinct(items: Parser) -> Parser:
    """A list none of whose items comes twice."""

    @takes({**items.schema, "uniqueItems": True})
    def parse(node: Node) -> tuple[Any, ...]:
        values: tuple[Any, ...] = items(node)
        for at, value in enumerate(values):
            if value in values[:at]:
                raise rejected(node, f"{shown(str(value))} is listed twice; keep one")
        return values

    return parse


@takes({"type": "object", "additionalProperties": {"type": "string", "maxLength": 4096}})
def texts(node: Node) -> dict[str, str]:
    """A mapping of words to texts."""
    if not isinstance(node, Pairs):
        raise unexpected(node, "a mapping of names to texts")
    words = text(empty=True, max_bytes=4096)
    values = _all([(words, value) for _, value in node.pairs])
    return {key.text: value for (key, _), value in zip(node.pairs, values, strict=True)}


def _all(parts: Sequence[tuple[Parser, Node]]) -> tuple[Any, ...]:
    values: list[Any] = []
    problems: list[Problem] = []
    for parser, node in parts:
        try:
            values.append(parser(node))
        except Rejected as error:
            problems += error.problems
    if problems:
        raise Rejected(*problems)
    return tuple(values)
