"""Routing-key templates: what they write, and what their author is told."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.template import NAMES, TemplateError, parse
from tests.core.core_samples import amqp_text, law

VALUES = {
    "queue": "work",
    "exchange": "shop",
    "routing_key": "order.created",
    "reason": "rejected",
    "attempts": "3",
    "vhost": "/",
}
HEADERS = {"tenant": "acme", "a b:c": "odd", "empty": ""}


@pytest.mark.parametrize(
    ("text", "key", "missing"),
    [
        ("", "", 0),
        ("dead", "dead", 0),
        ("dead.{queue}.{reason}", "dead.work.rejected", 0),
        ("{queue}{queue}", "workwork", 0),
        ("{vhost}|{exchange}|{routing_key}|{attempts}", "/|shop|order.created|3", 0),
        ("{{queue}}", "{queue}", 0),
        ("{{{queue}}}", "{work}", 0),
        ("{{}}", "{}", 0),
        ("a{{b{queue}c}}d", "a{bworkc}d", 0),
        ("{header:tenant}.{queue}", "acme.work", 0),
        ("{header:a b:c}", "odd", 0),
        ("{header:empty}", "", 0),
        ("{header:nobody}.{header:nothing}.x", "..x", 2),
        ("é😀{queue}", "é😀work", 0),
    ],
)
def test_a_template_is_rendered(text: str, key: str, missing: int) -> None:
    template = parse(text)
    assert template.render(VALUES, HEADERS.get) == (key, missing)
    assert template.text == text
    assert template.uses_headers is ("{header:" in text)


@law
@given(st.text("{}queheadr: ", max_size=12))
def test_any_text_is_parsed_or_refused_with_its_reason(text: str) -> None:
    with suppress(TemplateError):
        parse(text).render(VALUES, HEADERS.get)


@law
@given(st.lists(amqp_text | st.sampled_from(sorted(NAMES)).map(lambda name: (name,)), max_size=6))
def test_literal_text_and_values_stand_where_they_were_written(pieces: list[str | tuple[str]]) -> None:
    text = "".join(
        piece.replace("{", "{{").replace("}", "}}") if isinstance(piece, str) else f"{{{piece[0]}}}" for piece in pieces
    )
    expected = "".join(piece if isinstance(piece, str) else VALUES[piece[0]] for piece in pieces)
    assert parse(text).render(VALUES, HEADERS.get) == (expected, 0)


def test_headers_are_only_looked_up_where_they_are_asked_for() -> None:
    def never(name: str) -> str | None:
        raise AssertionError(name)

    assert parse("{queue}").render(VALUES, never) == ("work", 0)
