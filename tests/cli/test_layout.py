"""Laws of the layout: what is copied stays whole, nothing else is wider than the terminal, and no word is lost."""

import re
import shlex
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlx_router.cli.layout import Id, Number, Sentence, cells, command_lines, table, wrapped

WIDTHS: Final = st.integers(40, 200)
HEX: Final = st.text("0123456789abcdef", min_size=32, max_size=32)
GROUPS: Final = st.text("0123456789abcdef", min_size=16, max_size=16).map("g1-{}".format)
# A queue may have any name; its characters are spelt out before they get here, so that all of them are printable.
NAMES: Final = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=255).filter(
    lambda text: all(map(str.isprintable, text)) and "'" not in text and '"' not in text
)
WORDS: Final = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=90).filter(
    lambda text: all(map(str.isprintable, text)) and "'" not in text and '"' not in text
)
PROSE: Final = st.lists(WORDS | st.sampled_from(["the", "broker", "takes", "no", "messages"]), max_size=30).map(
    " ".join
)
INDENTS: Final = st.sampled_from(["", "  ", "      "])


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


@settings(deadline=None, max_examples=200)
@given(INDENTS, PROSE, HEX | GROUPS, PROSE, WIDTHS, st.sampled_from([0, 2, 12, None]))
@example("", "", "f" * 32, "x" * 300, 40, 2)
@example("      ", "y" * 300, "f" * 32, ", and more", 40, None)
def test_a_text_is_as_wide_as_the_terminal_and_keeps_its_ids_and_its_words(
    indent: str, before: str, item_id: str, after: str, width: int, hang: int | None
) -> None:
    lines = wrapped(f"{indent}{before} {item_id} {after}", width, hang=hang)
    assert any(item_id in line for line in lines)
    assert letters("".join(lines)) == letters(f"{before}{item_id}{after}")
    assert [line for line in lines if cells(line) > width] == []


@settings(deadline=None, max_examples=200)
@given(INDENTS, PROSE, NAMES, PROSE, WIDTHS)
@example("  ", "queue", "q" * 255, ": gone", 40)
def test_a_name_is_whole_whatever_its_length(indent: str, before: str, name: str, after: str, width: int) -> None:
    lines = wrapped(f"{indent}{before} {name}, {after}", width, ids=[name])
    assert any(name in line for line in lines)
    assert [line for line in lines if cells(line) > width and line.strip() != name] == []


ROWS: Final = st.lists(st.tuples(HEX, NAMES, PROSE, st.integers(0, 10**9).map(str), GROUPS, PROSE), max_size=5)
COLUMNS: Final = (Id("id"), Id("queue"), "text", Number("letters"), Id("group"), Sentence("why"))


@settings(deadline=None, max_examples=200)
@given(ROWS, WIDTHS)
@example([("f" * 32, "q" * 255, "", "0", "g1-" + "0" * 16, "")], 40)
def test_a_table_is_as_wide_as_the_terminal_and_keeps_its_ids(rows: list[tuple[str, ...]], width: int) -> None:
    head, body = table(COLUMNS, rows, width)
    whole = {cell for row in rows for cell in (row[0], row[1], row[4])}
    assert [cell for cell in whole if cell != "–" and not any(cell in line for line in body)] == []
    assert [line for line in (*head, *body) if cells(line) > width and line.strip() not in whole] == []
    shown = letters("".join(body))
    assert [row for row in rows if letters(row[3]) not in shown] == []


@settings(deadline=None, max_examples=100)
@given(ROWS)
def test_a_pipe_gets_a_line_for_each_row(rows: list[tuple[str, ...]]) -> None:
    head, body = table(COLUMNS, rows, None)
    assert (len(head), len(body)) == (1, len(rows))
    assert all(cell in line for row, line in zip(rows, body, strict=True) for cell in (row[0], row[1], row[4]))


SHELL: Final = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=120).filter(str.isprintable)


def continued(text: str) -> str:
    """As a shell reads it: a backslash at the end of a line goes on with the next one."""
    return text.replace("\\\n", "")


@settings(deadline=None, max_examples=200)
@given(st.lists(SHELL, min_size=1, max_size=8), st.booleans(), WIDTHS)
def test_a_command_that_was_broken_is_the_same_where_it_is_pasted(words: list[str], remark: bool, width: int) -> None:  # noqa: FBT001 - drawn
    line = shlex.join(["rabbitmqctl", *words])
    lines = command_lines(f"{line}  # it has it already" if remark else line, width)
    pasted = "\n".join(piece for piece in lines if not piece.startswith("# ")).removesuffix("  # it has it already")
    assert shlex.split(continued(pasted)) == ["rabbitmqctl", *words]
    commented = command_lines(f"# {line}", width)
    assert all(piece.startswith("# ") for piece in commented)
    assert shlex.split(continued("\n".join(piece.removeprefix("# ") for piece in commented))) == ["rabbitmqctl", *words]


@pytest.mark.parametrize(
    ("text", "count"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("👍", 2), ("–…✝", 3)]
)  # fmt: skip
def test_cells_are_counted_as_terminals_do(text: str, count: int) -> None:
    assert cells(text) == count


def test_what_does_not_fit_beside_stands_below_with_its_title() -> None:
    rows = [("f" * 32, "orders", "", "7", "g1-0123456789abcdef", "a reason that needs more room than there is")]
    head, body = table(COLUMNS, rows, 80)
    assert head == [f"{'id':<32}  queue   text  letters  group"]
    assert body[0] == f"{'f' * 32}  orders              7  g1-0123456789abcdef"
    assert body[1] == "  why: a reason that needs more room than there is"
