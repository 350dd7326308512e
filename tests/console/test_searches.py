"""Saved searches on the pages: what a list shows is saved as it is, found again as it was, and shown as text."""

from html import unescape
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.console.conftest import Desk
from tests.console.liar import WHEN, Liar, console, logged_in
from tests.console.test_pages import harmless
from tests.console.test_rendering import HOSTILE, Read
from tests.support.eventually import eventually

TWO_HOURS: Final = "since_ms=2026-01-31T13:00&until_ms=2026-01-31T15:00&zone=Europe/Berlin"


def hidden(page: str, action: str) -> dict[str, str]:
    """What the form of this action sends, as a browser would."""
    inside, fields = False, dict[str, str]()
    for tag, attrs in Read(page).elements:
        if tag == "form":
            inside = attrs.get("action") == action
        elif inside and tag == "input" and attrs.get("type") == "hidden":
            fields[str(attrs["name"])] = str(attrs["value"])
    return fields


async def test_a_list_saves_what_it_shows_with_its_times_as_moments() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        page = (await client.get(f"/letters?q=a+b&queue=orders&state=dead&sort=last&{TWO_HOURS}")).text
        answer = await client.post("/searches", data={**hidden(page, "/searches"), "name": " Late "})
        groups = (await client.get("/groups?queue=orders&sort=-deaths")).text
        await client.post("/searches", data={**hidden(groups, "/searches"), "name": "G"})
        assert (await client.post("/searches", data={**hidden(groups, "/searches"), "name": " "})).status_code == 422
        assert (await client.post("/searches", data={**hidden(groups, "/searches"), "page": "x"})).status_code == 422
    moments = {"since_ms": 1_769_860_800_000, "until_ms": 1_769_868_000_000}
    wanted = {"q": "a b", "queue": "orders", "state": "dead", "order": "oldest", **moments}
    vhost = "b"  # the first that may be seen, since the filter names none
    assert [body for method, path, body in liar.asked if (method, path) == ("POST", "/searches")] == [
        {"name": "Late", "vhost": vhost, "page": "letters", "filter": wanted},
        {"name": "G", "vhost": vhost, "page": "groups", "filter": {"queue": "orders", "sort": "deaths"}},
    ]
    params = parse_qs(urlsplit(answer.headers["location"]).query)
    assert (answer.status_code, params["sort"], params["since_ms"]) == (303, ["last"], [str(WHEN)])


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_name_of_others_is_text_and_leads_to_the_list_alone(text: str) -> None:
    async with logged_in(console(Liar(text))) as client:
        for path in ("/letters?queue=q", "/groups", "/searches"):
            page = harmless(await client.get(path))
            links = [str(attrs["href"]) for tag, attrs in page.elements if tag == "a" and attrs.get("href")]
            assert any(urlsplit(unescape(link)).path == "/letters" and f"since_ms={WHEN}" in link for link in links), (
                path
            )


async def test_who_may_only_look_finds_searches_and_can_neither_save_nor_delete_them() -> None:
    async with logged_in(console(Liar(role="viewer"))) as client:
        pages = [(await client.get(path)).text for path in ("/letters?queue=q", "/searches")]
    assert all(">plain<" in page for page in pages)
    assert not any("Save this search" in page or "/delete" in page for page in pages)


async def test_a_list_of_everything_has_nothing_to_save() -> None:
    async with logged_in(console(Liar())) as client:
        page = (await client.get("/letters")).text
    assert ("Saved searches" in page, "Save this search" in page) == (True, False)


# -- a real router ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("newest")
def test_a_search_is_saved_found_written_down_and_deleted(desk: Desk) -> None:
    desk.kill("saved.orders", 2)
    name = "Late <b>orders</b> of us"
    listing = "/letters?queue=saved.orders&state=dead"
    form = {**hidden(desk.web.get(listing).text, "/searches"), "name": name}
    turned = desk.web.post("/searches", data={**form, "name": f"{name}\u202e"}, headers={"origin": desk.url})
    assert turned.status_code == 422, "a name is what it looks like"
    shown = desk.web.post("/searches", data=form, headers={"origin": desk.url})
    assert (shown.status_code, shown.headers["location"]) == (303, "/letters?queue=saved.orders&state=dead")
    (saved,) = desk.rows("/searches")
    assert (saved["name"], saved["by"], saved["vhost"]) == (name, "olga", desk.vhost.name)
    for path in ("/letters", "/searches"):
        page = desk.web.get(path).text
        assert "Late &lt;b&gt;orders&lt;/b&gt; of us" in page, path
        assert f'href="{listing.replace("&", "&amp;")}"' in page, path
    again = desk.web.post("/searches", data=form, headers={"origin": desk.url})
    assert (again.status_code, "has saved a search of letters as" in unescape(again.text)) == (409, True)
    audit = unescape(desk.web.get("/audit").text)
    assert "search Late <b>orders</b> of us, page letters, queue saved.orders, state dead" in audit
    away = f"/searches/{saved['id']}/delete"
    assert desk.web.post(away, data={"csrf": "guessed", "vhost": desk.vhost.name}).status_code == 403
    assert desk.send("/searches", away, vhost=desk.vhost.name).status_code == 303
    assert desk.rows("/searches") == []
    assert desk.send("/searches", away, vhost=desk.vhost.name).status_code == 404
    eventually(lambda: "search.deleted" in desk.web.get("/audit").text or None, 10)
