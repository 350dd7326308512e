"""Parsers of the keys that have parts: conditions, outage, alert, journal."""

from collections.abc import Mapping
from typing import Any, Final

from dlx_router.config.findings import BAD_VALUE, UNKNOWN_KEY, nearest, shown
from dlx_router.config.language import conditions, values
from dlx_router.config.language.conditions import ConditionError
from dlx_router.config.language.values import Parser, Problem, Rejected, takes, unexpected
from dlx_router.config.language.yaml_tree import Node, Pairs, Scalar
from dlx_router.config.units import duration_text
from dlx_router.core.condition import Condition
from dlx_router.core.limits import Alert, Outage
from dlx_router.core.names import RUNGS

_BODIES: Final = ("none", "hash", "head", "retired", "final", "all")
_REDACTED: Final = 'a list of header names and JSON pointers, ["x-token", "/card/number"]'


def mapping(parsers: Mapping[str, Parser], wanted: str, *, required: bool = False) -> Parser:
    """A mapping with these keys, `required` with all of them, else at least one; → {key: value}."""
    needs: Mapping[str, Any] = {"required": [*parsers]} if required else {"minProperties": 1}
    properties = {key: parser.schema for key, parser in parsers.items()}

    @takes({"type": "object", "properties": properties, "additionalProperties": False, **needs})
    def parse(node: Node) -> dict[str, Any]:
        if not isinstance(node, Pairs) or not node.pairs:
            raise unexpected(node, wanted)
        fields: dict[str, Any] = {}
        problems: list[Problem] = []
        for key, value in node.pairs:
            try:
                fields[key.text] = _known(key, parsers, wanted)(value)
            except Rejected as error:
                problems += error.problems
        missing = [key for key in parsers if required and all(key != name.text for name, _ in node.pairs)]
        if missing and not problems:
            problems.append(Problem(node.line, f"{', '.join(missing)} missing; write {wanted}"))
        if problems:
            raise Rejected(*problems)
        return fields

    return parse


def _known(key: Scalar, parsers: Mapping[str, Parser], wanted: str) -> Parser:
    if key.text in parsers:
        return parsers[key.text]
    hint = nearest(key.text, parsers) or f"; write {wanted}"
    raise Rejected(Problem(key.line, f"unknown key {shown(key.text)}{hint}", UNKNOWN_KEY))


@takes({"type": "string", "minLength": 1, "maxLength": conditions.MAX_CHARS})
def condition(node: Node) -> Condition:
    """One expression in CEL; its errors have the column in the file, as far as a quoted text can tell it."""
    written = values.text(max_bytes=4 * conditions.MAX_CHARS)(node)
    try:
        return conditions.condition(written)
    except ConditionError as error:
        assert isinstance(node, Scalar)
        line, column = _place(node, error.line, error.column)
        raise Rejected(Problem(line, f"{shown(written)}: {error}", BAD_VALUE, column)) from None


def _place(node: Scalar, line: int, column: int) -> tuple[int, int]:
    """Line and column of the file. In a block scalar the text begins a line below, at a column that nobody keeps."""
    if node.style in {"|", ">"}:
        return (node.line + line if node.style == "|" else node.line), 0
    if line > 1:
        return node.line, 0
    before = node.text[: column - 1]
    quoted = {"'": ("'",), '"': ('"', "\\")}.get(node.style, ())
    return node.line, node.column + column - 1 + (1 if quoted else 0) + sum(before.count(mark) for mark in quoted)


_TOO_OFTEN: Final = f"is below {duration_text(RUNGS[0])}, the shortest time that a letter waits; write 5s or the like"
_OUTAGE: Final = mapping(
    {
        "deaths": values.integer(1, 100_000),
        "within": values.above_zero(values.duration, "is no time in which anything dies; write 10s or the like"),
        "probe-every": values.at_least(RUNGS[0], values.duration, _TOO_OFTEN),
    },
    "{deaths: 50, within: 10s, probe-every: 5s}",
    required=True,
)
_ALERT: Final = mapping(
    {
        "depth": values.integer(1, 2**53),
        "oldest": values.above_zero(values.duration, "is no age; write 1h or the like"),
        "rate": values.number(0, 1e9, "dead letters a second, a number above 0", above=True),
    },
    "{depth: 1000, oldest: 1h, rate: 5}, or some of them",
)
_JOURNAL: Final = mapping(
    {
        "events": values.one_of("all", "final"),
        "body": values.one_of(*_BODIES),
        "redact": values.distinct(values.list_of(values.text(max_bytes=1024), _REDACTED)),
    },
    "{events: all, body: final, redact: [x-token]}, or some of them",
)


@takes(_OUTAGE.schema)
def outage(node: Node) -> Outage:
    """Key `outage`."""
    fields = _OUTAGE(node)
    return Outage(fields["deaths"], fields["within"], fields["probe-every"])


@takes(_ALERT.schema)
def alert(node: Node) -> Alert:
    """Key `alert`."""
    fields = _ALERT(node)
    return Alert(fields.get("depth"), fields.get("oldest"), fields.get("rate"))


@takes(_JOURNAL.schema)
def journal(node: Node) -> dict[str, Any]:
    """Key `journal`, as the journal's rule takes it."""
    return dict(_JOURNAL(node))


CONDITIONS: Final = values.list_of(condition, 'a list of conditions, [\'header("x-error") == "invalid"\']')


OVERFLOW: Final = values.one_of("drop-head", "reject-publish", "reject-publish-dlx")
DELIVERY_LIMIT: Final = values.integer(0, 2**31 - 1, also=-1, wanted="a number of redeliveries: 0 or more, or -1")
LENGTH: Final = values.integer(1, 2**53, wanted="a number of messages, 1 or more")
LENGTH_BYTES: Final = values.above_zero(values.size, "would keep nothing; write a size such as 10MiB")
TTL: Final = values.above_zero(values.duration, "would keep nothing; write a duration such as 7d")
