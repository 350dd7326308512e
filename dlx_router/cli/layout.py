"""Laying out what is printed within the width of a terminal. Pure.

An identifier is what somebody copies from the screen into the next command: the id of a letter, group or task, the name
of a queue. It is never broken and never cut; a line is longer than the width only where an identifier alone is. All
else is text, and broken between words, or, where a word is longer than a line, inside it.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

GAP: Final = 2  # blanks between columns
NARROW: Final = 24  # a column of text gets that much before columns are put below
LONG_WORD: Final = 40  # up to this a word widens its column
# What the router makes up, and what its sentences put into quotes: names.
_IDS: Final = r"""\b(?:[0-9a-f]{32}|g\d+-[0-9a-f]{8,}|r-\d{8}-[0-9a-f]{8})\b|'[^' ]{3,}'|"[^" ]{3,}\""""
_LABEL: Final = re.compile(r" *\S.*?\S?  +(?=\S)")
_EMPTY: Final = frozenset({"", "–"})
Row = Sequence[str]


class Id(str):
    """The title of a column of identifiers."""

    __slots__ = ()


class Number(str):
    """The title of a column of numbers, which end at the same place."""

    __slots__ = ()


class Sentence(str):
    """The title of a column of whole sentences: below its row where it does not fit beside it."""

    __slots__ = ()


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _atoms(ids: Sequence[str]) -> str:
    """What is never broken, as an expression."""
    known = sorted((re.escape(name) for name in ids if name), key=len, reverse=True)
    return "|".join([*known, _IDS])


# -- text -------------------------------------------------------------------------------------------------------------


def wrapped(text: str, width: int | None, *, ids: Sequence[str] = (), hang: int | None = 2) -> list[str]:
    """The line as lines of that width; None: as it is. What follows the first is indented by `hang` more.

    `hang` None: to where the value begins that stands behind a label. `ids`: identifiers in it; those that the router
    makes up, and names in quotes, are known by their shape.
    """
    return [text] if width is None else _wrapped(text, width, _atoms(ids), hang)


def _wrapped(text: str, width: int, atoms: str, hang: int | None) -> list[str]:
    if cells(text) <= width:
        return [text]
    plain = text.replace("\t", " ")
    indent = " " * (len(plain) - len(plain.lstrip(" ")))
    after = " " * min(_hanging(plain) if hang is None else len(indent) + hang, width // 2)
    lines, line = [], indent
    for blanks, word in re.findall(rf"( *)((?:{atoms}|[^ ])+)", plain.lstrip(" ")):
        if line.strip() and cells(line) + len(blanks) + cells(word) <= width:
            line += blanks + word
            continue
        if line.strip():
            lines.append(line)
            line = after
        *full, line = _folded(line, word, width, atoms)
        lines += full
    return [*lines, line]


def _hanging(text: str) -> int:
    label = _LABEL.match(text)
    return cells(label[0]) if label is not None else 2


def _folded(indent: str, word: str, width: int, atoms: str) -> Iterator[str]:
    """The word behind the indent, in as many lines as it takes; an identifier that is too long has one of its own."""
    line = indent
    for atom in re.findall(f"{atoms}|.", word, re.DOTALL):
        if cells(line) + cells(atom) > width:
            if line.strip():
                yield line
            line = indent if len(indent) + cells(atom) <= width else ""
        line += atom
    yield line


# -- lines for a shell ------------------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_REMARK: Final = "  # "


def command_lines(line: str, width: int | None) -> list[str]:
    """A line for a shell, that still is one where it is pasted: broken by a backslash between words, no word broken.

    A remark behind a command stands before it; what is a comment stays one, line by line.
    """
    if width is None or cells(line) <= width:
        return [line]
    mark = "# " if line.startswith("# ") else ""
    command, _, remark = line.removeprefix(mark).partition(_REMARK)
    if remark:
        return [*command_lines(f"# {remark}", width), *command_lines(f"{mark}{command}", width)]
    words = _WORD.findall(command)
    if mark and words[:1] != ["rabbitmqctl"]:
        return [f"# {part}" for part in wrapped(command, width - cells(mark), hang=0)]
    lines, now = [], mark
    for word in words:
        if now.strip("# ") and cells(now) + cells(word) + 3 > width:  # a blank, and a blank with the backslash
            lines.append(f"{now} \\")
            now = f"{mark}    {word}"
        else:
            now = f"{now} {word}" if now.strip("# ") else f"{mark}{word}"
    return [*lines, now]


# -- tables -----------------------------------------------------------------------------------------------------------


def table(
    columns: Sequence[str], rows: Sequence[Row], width: int | None, *, ids: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The lines of the head and of the rows. What does not fit stands below its row, with its title.

    `ids`: identifiers in columns of text.
    """
    if width is None:
        plain = [["; ".join(cell.splitlines()) for cell in row] for row in rows]
        widths = [_natural(column, [row[at] for row in plain]) for at, column in enumerate(columns)]
        return _across(columns, columns, widths), [line for row in plain for line in _across(columns, row, widths)]
    grid = _Table(columns, rows, width, _atoms(ids))
    kept = grid.kept
    head = _across(columns[: len(kept)], columns[: len(kept)], kept)
    return head, [line for row in rows for line in grid.lines(row, kept)]


def _natural(column: str, values: Sequence[str]) -> int:
    return max(cells(column), *(cells(line) for cell in values for line in cell.splitlines()), 0)


def _across(columns: Sequence[str], row: Row, widths: Sequence[int]) -> list[str]:
    """A row beside one another: as many lines as its longest cell has."""
    stacks = [cell.splitlines() or [""] for cell in row]
    lines = []
    for at in range(max(map(len, stacks))):
        parts = [stack[at] if at < len(stack) else "" for stack in stacks]
        lines.append((" " * GAP).join(map(_padded, columns, parts, widths)).rstrip())
    return lines


def _padded(column: str, part: str, width: int) -> str:
    blanks = " " * max(width - cells(part), 0)
    return blanks + part if isinstance(column, Number) else part + blanks


@dataclass(frozen=True, slots=True)
class _Table:
    """A table for a terminal. `atoms`: what is never broken."""

    columns: Sequence[str]
    rows: Sequence[Row]
    width: int
    atoms: str

    @property
    def kept(self) -> list[int]:
        """The widths of as many columns as stand beside one another; at least one does."""
        natural = [_natural(column, self._usual(at)) for at, column in enumerate(self.columns)]
        if _sum(natural) <= self.width:
            return natural
        least = [self._least(at, natural[at]) for at in range(len(natural))]
        most = next((at for at, column in enumerate(self.columns) if at and isinstance(column, Sentence)), len(natural))
        count = next((n for n in range(most, 1, -1) if _sum(least[:n]) <= self.width), 1)
        return _shrunk(natural[:count], least[:count], self.width)

    def _usual(self, at: int) -> list[str]:
        """The cells of a column, but for identifiers that would leave no room for others."""
        values = [row[at] for row in self.rows]
        if not isinstance(self.columns[at], Id):
            return values
        return [cell for cell in values if cells(cell) <= max(self.width // 2, 34)]

    def _least(self, at: int, natural: int) -> int:
        """How narrow a column may be: of identifiers and numbers nothing is broken."""
        column = self.columns[at]
        if isinstance(column, Id | Number):
            return natural
        words = max((cells(word) for row in self.rows for word in row[at].split()), default=0)
        return min(natural, max(NARROW, cells(column), min(words, LONG_WORD)))

    def lines(self, row: Row, widths: Sequence[int]) -> Iterator[str]:
        """A row: beside one another what fits, and below it the rest."""
        fits = [self._fits(*pair) for pair in zip(self.columns, row, widths, strict=False)]
        shown = [self._cell(at, row[at], widths[at]) if fit else "" for at, fit in enumerate(fits)]
        if not fits[0]:
            yield from _wrapped(row[0], self.width, self._atoms_of(0, row[0]), 0)
        if any(shown):
            yield from _across(self.columns[: len(widths)], shown, widths)
        yield from self._below(row, [at for at in range(1, len(row)) if at >= len(fits) or not fits[at]])

    def _fits(self, column: str, cell: str, width: int) -> bool:
        whole = [cell] if isinstance(column, Id) else re.findall(self.atoms, cell)
        return max(map(cells, whole), default=0) <= width

    def _cell(self, at: int, cell: str, width: int) -> str:
        if isinstance(self.columns[at], Id | Number):
            return cell
        return "\n".join(line for part in cell.splitlines() for line in _wrapped(part, width, self.atoms, 0))

    def _atoms_of(self, at: int, cell: str) -> str:
        return f"{re.escape(cell)}|{self.atoms}" if cell and isinstance(self.columns[at], Id) else self.atoms

    def _below(self, row: Row, wanted: Sequence[int]) -> Iterator[str]:
        """Title and value of each of these that has one, as many in a line as fit."""
        line = " " * GAP
        for at in wanted:
            plain = "; ".join(row[at].splitlines())
            if plain in _EMPTY:
                continue
            pair = f"{self.columns[at]}: {plain}"
            if line.strip() and cells(line) + GAP + 1 + cells(pair) <= self.width:
                line += " " * (GAP + 1) + pair
                continue
            if line.strip():
                yield line
            *full, line = _wrapped(" " * GAP + pair, self.width, self._atoms_of(at, plain), 2)
            yield from full
        if line.strip():
            yield line


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrunk(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Where there is too little room, the widest of those that may shrink gives some."""
    widths = [*natural]
    while (over := _sum(widths) - width) > 0:
        can = [at for at, size in enumerate(widths) if size > least[at]]
        if not can:
            break
        widest = max(can, key=widths.__getitem__)
        other = max((widths[at] for at in can if at != widest), default=0)
        widths[widest] -= min(over, max(widths[widest] - max(other, least[widest]), 1))
    return widths
