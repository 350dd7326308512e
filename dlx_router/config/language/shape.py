"""Mappings with known keys: which keys are parsed how, and what to say about all others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlx_router.config.findings import BAD_VALUE, UNKNOWN_KEY, Report, kebab, nearest, shown
from dlx_router.config.language.values import Parser, Rejected, alternatives, takes
from dlx_router.config.language.yaml_tree import Node, Pairs, Scalar, described

MAX_LISTED = 8


class Field(NamedTuple):
    """A parsed value, and the line of its key."""

    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The keys of one kind of mapping. `hints` are for words that belong elsewhere or have another name here."""

    what: str
    parsers: Mapping[str, Parser]
    hints: Mapping[str, str] = field(default_factory=dict)

    def read(self, node: Node, report: Report) -> dict[str, Field] | None:
        """Every key that could be parsed, all problems in the report; None where the node is no mapping."""
        if not isinstance(node, Pairs):
            report.error(BAD_VALUE, node.line, f"expected {self.what} (a mapping), found {described(node)}")
            return None
        fields: dict[str, Field] = {}
        for key, value in node.pairs:
            if (parser := self.parsers.get(key.text)) is None:
                self._unknown(key, report)
                continue
            try:
                fields[key.text] = Field(parser(value), key.line)
            except Rejected as error:
                rejected(error, report, key.text)
        return fields

    def _unknown(self, key: Scalar, report: Report) -> None:
        if hint := self.hints.get(key.text) or self.hints.get(kebab(key.text)):
            report.error(UNKNOWN_KEY, key.line, f"{shown(key.text)} is no key of {self.what}; {hint}")
        else:
            listed = f"; known: {alternatives(self.parsers)}" if len(self.parsers) <= MAX_LISTED else ""
            report.error(
                UNKNOWN_KEY, key.line, f"unknown key {shown(key.text)}{nearest(key.text, self.parsers) or listed}"
            )


def rejected(error: Rejected, report: Report, where: str) -> None:
    """Put a parser's problems into the report, each led by the key that they are about."""
    for problem in error.problems:
        report.error(problem.code, problem.line, f"{where}: {problem.message}", problem.column)


@takes({})
def raw(node: Node) -> Node:
    """A parser that leaves the node for later."""
    return node
