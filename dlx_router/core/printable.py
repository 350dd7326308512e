"""Text that others wrote, for people: nothing in it commands a terminal, begins a line or tells a password."""

import re
from typing import Final

HIDDEN: Final = "***"
# From the scheme up to the last @ before the URL must end: a password may hold what it should not, "/" or "@".
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s\"'<>]*@")


def printable(line: str) -> str:
    """The line with control characters, line ends, bidirectional marks and the like spelt out as Python does."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in line)


def printable_lines(text: str) -> str:
    r"""As `printable`, of a text that we laid out in lines: \n stays."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def redacted(text: str) -> str:
    """The text without the credentials of any URL in it."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)
