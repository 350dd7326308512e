"""What a message says and where it leads: each kind has words and a page."""

from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.core.notices import EVENTS, TEST, TEXT_CHARS, Message, details, link, shortened, title

ITEM: Final[dict[str, dict[str, Any]]] = {
    "group": {"group": "g1-00ff", "failed_queue": "orders.eu", "reason": "rejected", "error_type": "KeyError",
              "message": "no <id>", "frame": "shop.py:7", "deaths": 3},
    "breaker": {"failed_queue": "orders.eu"},
    "letter": {"failed_queue": "orders.eu", "group": "g1-00ff", "letters": 7},
    "redrive": {"task": "abc", "kind": "redrive", "queue": "orders.dlq", "why": "3 died", "sent": 10, "meant": 90},
    "webhook": {},
}  # fmt: skip
KINDS: Final = [*EVENTS, TEST]


def message(kind: str, count: int | None = None, vhost: str = "/") -> Message:
    item = ITEM[kind.partition(".")[0]]
    number = int(item.get("letters", 1)) if count is None else count
    return Message("msg_1", kind, "" if kind == TEST else vhost, 1_700_000_000_000, number, (item,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_has_a_title(kind: str) -> None:
    for sample in (message(kind), message(kind, 12)):
        assert 5 < len(title(sample)) < 120
        assert "None" not in title(sample)


@pytest.mark.parametrize(
    ("kind", "path", "query"),
    [
        ("group.opened", "/groups/g1-00ff", {}),
        ("letter.parked", "/letters", {"state": ["parked"], "queue": ["orders.eu"], "vhost": ["/"]}),
        ("breaker.opened", "/letters", {"queue": ["orders.eu"], "vhost": ["/"]}),
        ("redrive.halted", "/tasks/abc", {"vhost": ["/"]}),
    ],
)
def test_a_message_leads_to_its_page_of_the_console(kind: str, path: str, query: dict[str, list[str]]) -> None:
    url = urlsplit(link("https://console.example/at/north/", message(kind)) or "")
    assert (url.netloc, url.path, parse_qs(url.query)) == ("console.example", f"/at/north{path}", query)
    assert link(None, message(kind)) is None


def test_a_message_of_several_leads_to_all_of_them_and_names_the_vhost() -> None:
    several = Message("m", "group.opened", "shop", 0, 3, (ITEM["group"], ITEM["group"]))
    assert title(several) == "3 new groups of deaths (vhost shop)"
    assert details(several)[-1] == "and 1 more"
    assert link("https://c", several) == "https://c/groups?state=open&vhost=shop"


def test_parked_letters_are_counted_and_not_their_groups() -> None:
    parked = message("letter.parked", 9)
    assert title(parked) == "9 letters were parked"
    assert details(parked) == ["orders.eu: 7", "and 2 more"]


@pytest.mark.parametrize(
    ("kind", "item", "said"),
    [
        ("group.opened", ITEM["group"], ["orders.eu: rejected, KeyError: no <id> at shop.py:7"]),
        ("group.opened", {"failed_queue": "q", "reason": "expired"}, ["q: expired"]),
        ("redrive.halted", ITEM["redrive"], ["redrive of orders.dlq, 10 of 90 sent: 3 died"]),
        (
            "redrive.finished",
            {"kind": "retire", "queue": "orders.dlq", "sent": 90, "meant": 90},
            ["retire of orders.dlq, 90 of 90 sent"],
        ),
        ("breaker.opened", ITEM["breaker"], ["orders.eu: all dies there; letters wait"]),
        ("breaker.closed", ITEM["breaker"], ["orders.eu: letters go their way again"]),
        ("breaker.closed", {}, ["?: letters go their way again"]),
        (TEST, {}, []),
    ],
)
def test_what_is_named_has_a_line_that_says_what_happened(kind: str, item: dict[str, Any], said: list[str]) -> None:
    assert details(Message("m", kind, "/", 0, 1, (item,))) == said


@given(st.none() | st.integers() | st.text(max_size=2 * TEXT_CHARS) | st.text(min_size=TEXT_CHARS))
@example("x" * TEXT_CHARS)
@example("x" * (TEXT_CHARS + 1))
def test_what_others_wrote_is_short_and_says_where_it_was_cut(text: object) -> None:
    plain, short = "" if text is None else str(text), shortened(text)
    assert len(short) <= TEXT_CHARS
    assert short == plain if len(plain) <= TEXT_CHARS else short == f"{plain[: TEXT_CHARS - 1]}…"


@given(st.text(max_size=40), st.sampled_from(["group.opened", "breaker.opened", "letter.parked"]))
def test_names_of_others_lead_nowhere_else(name: str, kind: str) -> None:
    item = {**ITEM[kind.partition(".")[0]], "failed_queue": name, "group": ""}
    hostile = Message("m", kind, "/", 0, 1, (item,))
    assert "{" not in title(hostile) or "{" in name
    url = urlsplit(link("https://c.example", hostile) or "")
    assert (url.scheme, url.netloc) == ("https", "c.example")
    assert unquote(url.path) in {"/letters", "/groups"}
