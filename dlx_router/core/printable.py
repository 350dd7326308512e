"""Text that others wrote, for people: nothing in it commands a terminal, begins a line or tells a password."""

import re
from typing import Any, Final

from dlx_router.core.nested_json import in_a_line

HIDDEN: Final = "***"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet would compute
# From the scheme up to the last @ before the URL must end: a password may hold what it should not, "/" or "@".
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s\"'<>]*@")


def printable(line: str) -> str:
    """The line with control characters, line ends, bidirectional marks and the like spelt out as Python does."""
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in line
    )


def printable_lines(text: str) -> str:
    r"""As `printable`, of a text that we laid out in lines: \n stays."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def plain(value: Any) -> str:  # noqa: ANN401 - JSON
    """A text as it is, all else as JSON: nothing in the words of Python."""
    return value if isinstance(value, str) else in_a_line(value)


def no_formula(text: str) -> str:
    """The text as a spreadsheet shows it: what it would take for a formula gets a ' in front."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def redacted(text: str) -> str:
    """The text without the credentials of any URL in it."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)
