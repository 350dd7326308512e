"""What others wrote is text on a page, in a sheet and in a command line, whatever it is."""

import csv
import io
import json
import re
import shlex
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.core import TyperGroup

from dlx_router.cli.main import program
from dlx_router.console.command_lines import command, task_command
from dlx_router.console.exports import as_csv, cell
from dlx_router.console.forms import moment_field, moment_ms
from dlx_router.console.pages.overview import BARS, course
from dlx_router.console.rendering import ago, cut, environment, hexdump, lasting, query, sparkline, when
from dlx_router.core.printable import printable_lines
from dlx_router.redrive.task import Kind
from tests.console.liar import task

HOSTILE = (
    "<script>alert(1)</script>",
    "\"' onmouseover=alert(1) x='",
    "\u202eevil\u2066",
    "\x00\x07\x1b[31m",
    "]]>--><!--",
    "\udc80",
    "\ud800",
    "=cmd|' /C calc'!A0",
    "{{ 7 * 7 }}",
    "</textarea><img src=x>",
    "A" * 5000,
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=60))


class Read(HTMLParser):
    """Elements, attributes and text of a page, as a browser would have them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXTS)
def test_any_text_is_text_in_an_element_and_in_an_attribute(text: str) -> None:
    page = environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    read = Read(page)
    assert [tag for tag, _ in read.elements] == ["p"]
    assert read.elements[0][1] == {"title": printable_lines(text)}
    assert read.text == printable_lines(text)
    assert page.encode()


@given(TEXTS)
def test_a_sparkline_is_labelled_by_any_text(text: str) -> None:
    read = Read(sparkline([0, 3, 1], text))
    assert {tag for tag, _ in read.elements} == {"svg", "rect"}
    assert read.elements[0][1]["aria-label"] == printable_lines(text)
    assert not any("style" in attrs for _, attrs in read.elements)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_no_cell_of_a_sheet_is_a_formula_and_all_come_back(texts: list[str]) -> None:
    columns = [str(number) for number in range(len(texts))]
    rows = list(csv.reader(io.StringIO(as_csv(columns, [dict(zip(columns, texts, strict=True))]), newline="")))
    assert len(rows) == 2
    for value in rows[1]:
        assert not value.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_numbers_stay_numbers_in_a_sheet() -> None:
    assert [cell(value) for value in (-3, 0, 1.5, None, True, "x", "-3", {"a": 1})] == [
        "-3",
        "0",
        "1.5",
        "",
        "true",
        "x",
        "'-3",
        '{"a": 1}',
    ]


@given(TEXTS, TEXTS)
def test_an_address_keeps_the_names_in_it(name: str, other: str) -> None:
    address = query("/letters", {"queue": name}, q=other)
    assert address.isascii()
    assert not set(address) & set("\"'<> \n")
    fields = parse_qs(urlsplit(address).query, keep_blank_values=True, errors="surrogateescape")
    if not any(0xD800 <= ord(char) < 0xDC80 or 0xDCFF < ord(char) < 0xE000 for char in name + other):
        assert fields.get("queue", [""]) == [name]
        assert fields.get("q", [""]) == [other]


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0 ms"), (450, "450 ms"), (61_000, "1 min 1 s"), (90_000_000, "1 d 1 h"), (-1500, "-1 s")]
)
def test_lengths_of_time(ms: int, said: str) -> None:
    assert lasting(ms) == said


@pytest.mark.parametrize("ms", [None, 0, -1, 10**18, float("nan"), float("inf"), "now"])
def test_a_moment_that_is_none_is_a_dash(ms: Any) -> None:
    assert when(ms) == "–"
    assert ago(ms) == "–"


@given(st.integers(1, 253_402_300_798_999), st.integers(0, 253_402_300_798_999))
def test_every_moment_can_be_said(ms: int, now_ms: int) -> None:
    assert str(ago(ms, now_ms)).startswith("<time datetime=")


@given(st.integers(1, 253_402_300_798))
def test_a_field_for_a_moment_gives_back_the_second_that_it_showed(second: int) -> None:
    assert moment_ms(moment_field(str(second * 1000 + 999))) == str(second * 1000)
    assert moment_field(moment_ms(moment_field(str(second * 1000)))) == moment_field(str(second * 1000)), "as typed"


@given(TEXTS.filter(lambda text: text.strip() == text))
def test_what_is_no_moment_is_left_to_the_router_to_refuse(text: str) -> None:
    assert re.fullmatch(r"-?\d+", moment_ms(text)) or moment_ms(text) == text
    assert re.fullmatch(r"|\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d", moment_field(text))


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("2026-01-31T12:00", "1769860800000"),  # as browsers send it where nobody typed seconds
        ("2026-01-31T12:00:01", "1769860801000"),
        ("2026-01-31T12:00Z", "1769860800000"),
        ("2026-01-31T13:00+01:00", "1769860800000"),
        ("1769860800123", "1769860800123"),
        ("", ""),
        ("yesterday", "yesterday"),
    ],
)
def test_a_moment_is_ms_or_a_time_in_utc(said: str, ms: str) -> None:
    assert moment_ms(said) == ms


@given(st.text(), st.integers(1, 50))
def test_what_is_cut_says_how_much_is_missing(text: str, most: int) -> None:
    short = cut(text, most)
    assert short == text if len(text) <= most else short.endswith(f"({len(text) - most:,} more characters)")


@given(st.binary(max_size=100))
def test_bytes_in_rows_of_sixteen(data: bytes) -> None:
    rows = hexdump(data.hex()).splitlines()
    assert len(rows) == -(-len(data) // 16)
    assert bytes.fromhex("".join(row[10:57] for row in rows)) == data


@given(st.lists(st.integers(0, 2000)), st.integers(0, 900), st.integers(901, 2000))
def test_a_course_has_each_moment_of_its_time_once(moments: list[int], since: int, until: int) -> None:
    bars = course(moments, since, until)
    assert len(bars) == BARS
    assert sum(bars) == sum(since <= moment <= until for moment in moments)


def resolved(line: str) -> tuple[str, dict[str, Any]]:
    """Which command the line is, and what it would be given: the shown command is a true one."""
    words, names = shlex.split(line), list[str]()
    assert words.pop(0) == "dlx-router"
    node: Any = program()
    while isinstance(node, TyperGroup) and words:
        names.append(words.pop(0))
        node = node.commands[names[-1]]
    context = node.make_context("x", words)
    return " ".join(names), context.params


def parsed(line: str) -> dict[str, Any]:
    """What the command line would be given."""
    return resolved(line)[1]


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(
    lambda name: name.strip()
)


@pytest.mark.slow
@settings(deadline=None)  # the first one loads the command line
@given(
    queue=NAMES,
    group=NAMES,
    filter_=NAMES,
    kind=st.sampled_from(("redrive", "park", "discard")),
    limit=st.integers(0, 9),
)
def test_the_shown_command_means_what_the_button_does(
    queue: str, group: str, filter_: str, kind: str, limit: int
) -> None:
    spec = task("x")["spec"] | {
        "queue": queue,
        "group": group,
        "filter": filter_,
        "kind": kind,
        "limit": limit,
        "ids": [],
    }
    params = parsed(task_command(spec))
    assert (params["queue"], params["group"], params["filter_"]) == (queue, group, filter_)
    assert (params["limit"] or 0, params["vhost"]) == (limit, "x")
    assert (params["rate"], params["dry_run"]) == (0.0, True)


def test_a_canary_and_another_queue_are_in_the_command() -> None:
    canary = {"first": 3, "watch_s": 60.0, "max_dead_percent": 2.5}
    spec = task("q")["spec"] | {"canary": canary, "to": {"exchange": "", "routing_key": "-other"}, "rate": 12.5}
    params = parsed(task_command(spec))
    assert (params["canary"], params["watch"], params["max_dead"]) == (3, 60.0, 2.5)
    assert (params["to_queue"], params["rate"]) == ("-other", 12.5)
    assert parsed(command("letters", "show", operand="--yes"))["letter"] == "--yes"


COMMANDS = {
    Kind.REDRIVE: "redrive start",
    Kind.DISCARD: "discard",
    Kind.PARK: "redrive park",
    Kind.EXPORT: "letters export",
}
OF_AN_EXPORT = {"source": "queue", "condition": "filter_"}  # its options, as other commands call them


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_task_has_its_own_command(kind: Kind) -> None:
    """The page of an export showed one that sends all letters back."""
    wanted = {"queue": "q", "ids": ["4f", "5a"], "group": "g1-1", "limit": 7}
    spec = task("v")["spec"] | wanted | {"kind": kind.value, "filter": "size > 1", "dry_run": False}
    name, params = resolved(task_command(spec | {"not_a_dead_letter_queue": True}))
    params = {OF_AN_EXPORT.get(name, name): value for name, value in params.items() if value is not None}
    expected = wanted | {"filter_": "size > 1", "vhost": "v", "known": True}
    assert name == COMMANDS[kind]
    assert {name: params[name] for name in expected} == expected


def test_an_edit_is_shown_as_one_with_places_to_fill_in() -> None:
    spec = task("v")["spec"] | {"ids": ["-4f"], "group": "", "filter": "", "dry_run": False, "queue": "q"}
    name, params = resolved(task_command(spec | {"edit": {"headers": ["x-a", "x b"], "body_bytes": 7}}))
    assert (name, params["letter"], params["queue"], params["vhost"]) == ("edit", "-4f", "q", "v")
    assert (params["body"], params["headers"]) == ("FILE", ["x-a=VALUE", "x b=VALUE"])
    elsewhere = {"edit": {"headers": ["x-a"], "body_bytes": None}, "to": {"exchange": "", "routing_key": "other"}}
    params = parsed(task_command(spec | elsewhere))
    assert (params["body"], params["to_queue"]) == (None, "other")


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "unheard-of"},
        {"kind": "export", "dry_run": True},
        {"kind": "discard", "canary": {"first": 9}},
        {"to": {"exchange": "", "routing_key": ""}},
        {"edit": {"headers": [], "body_bytes": 1}, "to": {"exchange": "x", "routing_key": "k"}},
    ],
    ids=str,
)
def test_where_no_command_says_the_same_none_is_shown(given: dict[str, Any]) -> None:
    spec = task("q")["spec"] | {"dry_run": False} | given
    assert task_command(spec) == ""
    shell = environment().from_string('{% from "parts.html" import shell %}{{ shell(command) }}')
    assert shell.render(command=task_command(spec)).strip() == ""


def test_a_pace_is_shown_to_its_last_digit() -> None:
    spec = task("q")["spec"] | {"rate": 12_345.678}
    assert parsed(task_command(spec))["rate"] == 12_345.678


def test_every_template_is_well_formed_and_runs_nothing_of_its_own() -> None:
    made = environment()
    for name in made.list_templates():
        assert made.loader is not None
        source, _, _ = made.loader.get_source(made, name)
        assert " style=" not in source, name
        assert "| safe" not in source, name
        assert "autoescape" not in source, name
        for tag, attrs in Read(re.sub(r"{[{%].*?[%}]}", "", source)).elements:
            assert not any(attr.startswith("on") for attr in attrs), (name, tag)
            for attr in ("src", "href", "action", "hx-get"):
                assert not (attrs.get(attr) or "").lower().startswith(("http", "//", "javascript", "data:")), (
                    name,
                    attrs,
                )
            assert tag != "style"
        assert source.count("<script") == len(
            re.findall(r'<script src="{{ assets\["\S+"\] }}" defer></script>', source)
        )


def test_a_json_document_is_shown_as_it_is() -> None:
    text = environment().filters["pretty"]({"a": "<b>", "n": 1})
    assert json.loads(text) == {"a": "<b>", "n": 1}
