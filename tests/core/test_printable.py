"""What others wrote is shown so that it commands nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer\tals", "größer\tals"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb", "a\\r\\nb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_could_command_a_terminal_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_a_line_stays_one_and_lines_stay_lines(text: str) -> None:
    assert all(one.isprintable() or one == "\t" for one in printable(text))
    assert printable_lines(text).split("\n") == [printable(line) for line in text.split("\n")]
