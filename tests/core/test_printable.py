"""What others wrote is shown so that it commands nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.printable import printable, printable_lines, redacted


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
    assert all(char.isprintable() or char == "\t" for char in printable(text))
    assert printable_lines(text).split("\n") == [printable(line) for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no URL", "no URL"),
        ("me@example.com", "me@example.com"),
        ("https://example.com/a", "https://example.com/a"),
        ("amqp://guest:guest@host/v: refused", "amqp://***@host/v: refused"),
        ("amqp://only-a-user@host", "amqp://***@host"),
        ("http://u:p/w@d@host:15672/api", "http://***@host:15672/api"),
        ("a http://u:p@one, b 'http://v:q@two'", "a http://***@one, b 'http://***@two'"),
        ("no host: amqps://u:p@", "no host: amqps://***@"),
    ],
)
def test_a_url_tells_no_credentials(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


words = st.text("abc/@:!\u00e9", min_size=1, max_size=12)


@given(words, words, st.sampled_from(["amqp", "https"]))
def test_no_part_of_a_password_is_left_whatever_it_is_of(user: str, password: str, scheme: str) -> None:
    assert (
        redacted(f"cannot reach {scheme}://{user}:{password}@host/x now") == f"cannot reach {scheme}://***@host/x now"
    )
