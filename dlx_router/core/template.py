"""Routing-key templates: `dead.{queue}.{reason}`, parsed once, rendered for each letter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

NAMES: Final = frozenset({"queue", "exchange", "routing_key", "reason", "attempts", "vhost"})


class TemplateError(ValueError):
    """The policy's author erred: an unknown name or an unbalanced brace."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template; `parts` alternate literal text and `(kind, name)` fields.

    `header:NAME` fields are looked up by a function, so that a letter's headers are only walked when asked for.
    """

    text: str
    parts: tuple[str | tuple[str, str], ...]

    @property
    def uses_headers(self) -> bool:
        """Whether rendering looks at the letter's headers."""
        return any(isinstance(part, tuple) and part[0] == "header" for part in self.parts)

    def render(self, values: Mapping[str, str], header: Callable[[str], str | None]) -> tuple[str, int]:
        """The text, and how many headers were missing or structured (each renders as empty)."""
        out: list[str] = []
        missing = 0
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
            elif part[0] == "value":
                out.append(values[part[1]])
            else:
                value = header(part[1])
                missing += value is None
                out.append(value or "")
        return "".join(out), missing


def parse(text: str) -> Template:
    """Parse, or raise TemplateError that names the field and the column."""
    parts: list[str | tuple[str, str]] = []
    literal: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at : at + 2] == char * 2:
            literal.append(char)
            at += 2
        elif char == "{":
            end = text.find("}", at)
            if end < 0:
                raise TemplateError(f"'{{' at column {at + 1} is never closed; write '{{{{' for a literal brace")
            parts += ["".join(literal)] if literal else []
            literal = []
            parts.append(_field(text[at + 1 : end], at + 1))
            at = end + 1
        elif char == "}":
            raise TemplateError(f"'}}' at column {at + 1} closes nothing; write '}}}}' for a literal brace")
        else:
            literal.append(char)
            at += 1
    parts += ["".join(literal)] if literal else []
    return Template(text, tuple(parts))


def _field(name: str, column: int) -> tuple[str, str]:
    if name.startswith("header:") and len(name) > len("header:"):
        return ("header", name.removeprefix("header:"))
    if name in NAMES:
        return ("value", name)
    known = ", ".join(sorted(NAMES)) + ", header:NAME"
    raise TemplateError(f"unknown field {{{name}}} at column {column}; known: {known}")
