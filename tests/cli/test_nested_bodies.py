"""`letters show` of a letter whose JSON is nested deeply: it is shown, however deep, by whatever router told it."""

import json
from typing import Any

import pytest

from dlx_router.cli import output
from dlx_router.cli.letter_history import drawn
from tests.admin.test_bodies import explained, of_depth
from tests.console.liar import whole


@pytest.mark.parametrize("depth", [64, 65, 900, 955, 1400, 1495])
def test_a_letter_whose_json_is_nested_deeply_is_drawn(depth: int, capsys: pytest.CaptureFixture[str]) -> None:
    letter = whole("q") | {"body": explained(stored=("inline", "ab", "application/json", of_depth(depth)))}
    assert sum(map(len, drawn(letter))) < 200_000
    output.as_json([letter])
    assert json.loads(capsys.readouterr().out)[0]["body"] == letter["body"]


def test_what_a_router_of_before_sends_is_drawn_however_deep_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    content: Any = json.loads(of_depth(900))
    letter = whole("q") | {"body": whole("q")["body"] | {"form": "json", "content": content}}
    assert sum(map(len, drawn(letter))) < 200_000
    output.as_json([letter])
    assert len(capsys.readouterr().out) < 200_000
