"""Lists of several routers are one list: nothing is missing, nothing comes twice, and the order is that of each."""

import json
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.admin.api import merging
from dlx_router.admin.api.envelope import Answered
from dlx_router.admin.api.merging import LISTS, Part, Unmergeable

ROUTERS: Final = ("a-1", "b-2", "c-3")
Rows = dict[str, list[dict[str, Any]]]
MOMENTS: Final = st.lists(st.integers(1, 50), max_size=12)
LETTERS: Final = st.fixed_dictionaries(dict.fromkeys(ROUTERS, MOMENTS)).map(
    lambda drawn: {
        router: [
            {"id": f"{router}.{number}", "cursor": number, "last_ms": ms}
            for number, ms in sorted(enumerate(moments, 1), reverse=True)
        ]
        for router, moments in drawn.items()
    }
)


def part(router: str, **document: Any) -> Part:
    return Part(router, Answered(200, body=json.dumps(document).encode()))


def query(target: str) -> dict[str, str]:

    return dict(parse_qsl(target.partition("?")[2], keep_blank_values=True))


def page_of(rows: Rows, target: str) -> dict[str, Any]:
    """As routers answer: newest first, behind the cursor."""
    merge = LISTS["/api/v1/letters"]
    parts = []
    for router, asked in merge.split(target, ROUTERS).items():
        given, limit = query(asked), int(query(asked)["limit"])
        before = int(given.get("cursor", 2**53))
        letters = [letter for letter in rows[router] if letter["cursor"] < before][:limit]
        parts.append(part(router, letters=letters, next=letters[-1]["cursor"] if len(letters) == limit else None))
    answered: dict[str, Any] = json.loads(merge.join(target, parts, {}).body)
    return answered


@given(LETTERS, st.integers(1, 5))
def test_pages_of_letters_have_each_once_in_the_order_of_its_router(rows: Rows, limit: int) -> None:
    target, seen = f"/api/v1/letters?limit={limit}&queue=%2F%C3%BC", list[dict[str, Any]]()
    page: dict[str, Any] = {}
    for _ in range(60):
        page = page_of(rows, target)
        assert len(page["letters"]) <= limit
        seen += page["letters"]
        if page["next"] is None:
            break
        target = f"/api/v1/letters?limit={limit}&queue=%2F%C3%BC&cursor={page['next']}"
    assert page["next"] is None, "it ends"
    for router, its in rows.items():
        assert [letter for letter in seen if letter["id"].startswith(router)] == its
    assert len(seen) == sum(map(len, rows.values()))


@given(LETTERS)
def test_where_each_router_is_in_order_all_of_it_is(rows: Rows) -> None:
    for its in rows.values():
        its.sort(key=lambda letter: (-letter["last_ms"], -letter["cursor"]))
        for number, letter in enumerate(reversed(its), 1):
            letter["cursor"] = number
    moments = [letter["last_ms"] for letter in page_of(rows, "/api/v1/letters?limit=100")["letters"]]
    assert moments == sorted(moments, reverse=True)


@pytest.mark.parametrize("cursor", ["7", "~", "~e30", "~bm9uZQ", "~W10", "x", "~eyJhLTEiOjF9", "~" + "A" * 300])
def test_a_cursor_of_other_routers_says_so(cursor: str) -> None:
    with pytest.raises(Unmergeable, match="newest"):
        LISTS["/api/v1/letters"].split(f"/api/v1/letters?cursor={cursor}", ROUTERS)


@given(st.lists(st.tuples(st.sampled_from(ROUTERS), st.integers(1, 99)), max_size=40), st.integers(1, 7))
def test_pages_of_groups_have_each_once_in_order(deaths: list[tuple[str, int]], limit: int) -> None:
    merge, seen, offset = LISTS["/api/v1/groups"], list[dict[str, Any]](), 0
    rows = [{"id": str(number), "router": router, "last_ms": ms} for number, (router, ms) in enumerate(deaths)]
    while True:
        target = f"/api/v1/groups?limit={limit}&offset={offset}&state=open"
        parts = []
        for router, asked in merge.split(target, ROUTERS).items():
            given = query(asked)
            assert given["state"] == "open"
            its = sorted(
                (group for group in rows if group["router"] == router), key=lambda group: -int(str(group["last_ms"]))
            )
            whole = int(given["limit"])
            parts.append(part(router, groups=its[:whole], next=whole if len(its) > whole else None))
        page = json.loads(merge.join(target, parts, {"x": "away"}).body)
        assert page["missing"] == {"x": "away"}
        seen += page["groups"]
        if page["next"] is None:
            break
        offset = page["next"]
    assert sorted(group["id"] for group in seen) == sorted(str(group["id"]) for group in rows)
    assert [group["last_ms"] for group in seen] == sorted((group["last_ms"] for group in seen), reverse=True)


def test_deep_pages_of_groups_ask_for_a_vhost() -> None:
    with pytest.raises(Unmergeable, match="name a vhost"):
        LISTS["/api/v1/groups"].split("/api/v1/groups?limit=100&offset=500", ROUTERS)


def test_one_that_refuses_the_question_refuses_it_for_all() -> None:
    refusal = Part("b-2", Answered(422, body=b'{"error":"cannot be understood"}'))
    for merge in LISTS.values():
        assert merge.join("/x", [refusal], {}).status == 422


def test_a_letter_is_not_there_only_where_nobody_knows_it() -> None:
    away, none = Part("a-1", Answered(503, body=b"away")), Part("b-2", Answered(404, body=b"none"))
    known = part("c-3", letters=[{"id": "x"}])
    assert merging.COPIES.join("/x", [none, away], {}).status == 503
    assert merging.COPIES.join("/x", [none, none], {}).status == 404
    both = merging.COPIES.join("/x", [known, none, known], {})
    assert json.loads(both.body) == {"letters": [{"id": "x"}] * 2}
    assert merging.ANY.join("/x", [none, known], {}).status == 200
