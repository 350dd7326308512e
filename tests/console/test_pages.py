"""Who may see and do what, and that no text of others does anything, on every page."""

import asyncio
import csv
import io
import itertools
import re
from html import unescape
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dlx_router.admin.api.bodies import body_of
from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.app import PAGES, create_app
from dlx_router.console.auth import BEYOND_AT_ONCE, LOGINS
from dlx_router.console.forms import MAX_FORM_BYTES
from dlx_router.console.pages.letters import editable
from dlx_router.console.router_api import MAX_ANSWER_BYTES, RouterApi
from tests.admin.test_bodies import explained, letter_with, of_depth
from tests.console.liar import LEASE, TOKEN, Liar, browser, console, csrf, logged_in, task
from tests.console.test_rendering import HOSTILE, TEXTS, Read, parsed
from tests.journal.conftest import soon

PATHS = [
    "/",
    "/groups",
    "/groups/g1-1",
    "/letters",
    "/letters/4f2445e91123",
    "/letters/4f2445e91123/edit",
    "/redrive?queue=q",
    "/tasks",
    "/tasks/5cc63cdf0e4f",
    "/policies",
    "/explain?queue=q",
    "/audit",
]
CHANGES = [
    "/groups/g1-1",
    "/letters/4f/send-back",
    "/letters/4f/discard",
    "/letters/4f/edit",
    "/letters/4f/comment",
    "/redrive",
    "/tasks/5cc6/start",
    "/tasks/5cc6/cancel",
    "/theme",
    "/logout",
]
OURS = {
    "a", "body", "button", "circle", "code", "datalist", "dd", "details", "div", "dl", "dt", "footer", "form", "h1",
    "h2", "head", "header", "html", "input", "label", "li", "link", "main", "meta", "nav", "ol", "option", "p",
    "path", "pre", "progress", "rect", "script", "section", "select", "small", "span", "strong", "summary", "svg",
    "table", "tbody", "td", "textarea", "th", "thead", "time", "title", "tr", "ul",
}  # fmt: skip


def test_the_list_of_pages_here_is_whole() -> None:
    def shape(path: str) -> str:
        return re.sub(r"\{\w+\}|(?<=groups/)[^/]+|(?<=letters/)[^/]+|(?<=tasks/)[^/]+", "*", path.partition("?")[0])

    assert {shape(path) for path in PATHS} == {shape(path) for method, path, _ in PAGES if method == "GET"}


def harmless(page: httpx.Response) -> Read:
    """The page has our elements only, no handler, no address of elsewhere, and tells browsers to see to it."""
    assert page.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["connection"] == "close"
    read = Read(page.text)
    assert {tag for tag, _ in read.elements} <= OURS, {tag for tag, _ in read.elements} - OURS
    for tag, attrs in read.elements:
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        for name in ("href", "src", "action", "hx-get"):
            link = attrs.get(name)
            assert link is None or (link[:1] in "/#" and not link.startswith("//")), (tag, attrs)
    seen = re.sub(r'<(input type="hidden"|option)[^>]*>', "", page.text)  # what comes back has to be what it was
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0e-\x1f\x7f]", seen)
    return read


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(TEXTS)
async def test_no_text_does_anything_on_any_page(text: str) -> None:
    app = console(Liar(text or "x"))
    async with logged_in(app) as client:
        for path in PATHS:
            page = await client.get(path)
            assert page.status_code == 200, (path, page.text)
            harmless(page)


async def test_every_page_shows_a_command_that_does_the_same() -> None:
    async with logged_in(console(Liar())) as client:
        for path in PATHS:
            page = (await client.get(path)).text
            shown = [unescape(command) for command in re.findall(r'<p class="shell">.*?<code>(.*?)</code>', page)]
            assert shown, path
            for line in shown:
                parsed(line)
        letter, group, edit = [(await client.get(PATHS[at])).text for at in (4, 2, 5)]
    whole = "4f2445e91123" + "0" * 20
    for action in (f"redrive start --id {whole}", "edit --queue plain --vhost plain", f"discard --id {whole}"):
        assert f"dlx-router {action}" in letter, action
    assert "dlx-router edit --queue plain --vhost plain" in edit
    assert ("groups resolve g1-" in group, "groups ignore g1-" in group) == (True, True)


async def test_a_dry_run_says_no_pace_and_a_pace_is_said_as_it_was_typed() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        assert "<dt>Pace</dt>" not in (await client.get("/tasks/5cc63cdf0e4f")).text
        liar.changed = {"spec": task("plain")["spec"] | {"dry_run": False, "rate": 50.0}}
        assert "<dt>Pace</dt><dd>50 a second</dd>" in (await client.get("/tasks/5cc63cdf0e4f")).text


async def test_a_task_in_the_audit_is_told_as_people_read_it_and_a_dry_run_sent_nothing() -> None:
    liar = Liar()
    liar.details = {"task": task("plain"), "mac": "736e7519"}
    async with logged_in(console(liar)) as client:
        audit, tasks = [(await client.get(path)).text for path in ("/audit", "/tasks")]
        whole = (await client.get("/audit?format=json")).text
    assert "task 5cc63cdf0e4f, kind redrive (dry run), queue plain, would go 3" in audit
    assert ("736e7519" in audit, "736e7519" in whole) == (False, True)
    assert "<small>would go</small> 3" in tasks


class Refusing(Liar):
    """Serves these vhosts, and refuses what is asked of the tasks, or of another list."""

    vhosts: tuple[str, ...] = ("a",)
    refused = "/tasks"

    def answers(self, path: str) -> dict[str, Any] | None:
        answer = super().answers(path)
        if path == "/status" and answer is not None:
            answer["vhosts"] = {vhost: {"leader": "x"} for vhost in self.vhosts}
        return None if path == self.refused else answer


async def test_the_overview_says_of_which_vhosts_it_has_no_tasks() -> None:
    """They were left out without a word, and the page said that nobody sends letters back."""
    liar = Refusing("plain")
    async with logged_in(console(liar)) as client:
        page = (await client.get("/")).text
        liar.vhosts = tuple(f"v{number:02}" for number in range(25))
        many = (await client.get("/")).text
        liar.vhosts, liar.refused = ("a", "b"), ""
        fine = (await client.get("/")).text
    assert "Not shown of vhost a: there is no plain" in page
    assert "No tasks." not in page
    assert "Not shown of 20 vhosts: there is no plain" in many
    assert "Not shown of 5 vhosts: only 20 vhosts are asked here; the page of tasks shows each" in many
    assert "Not shown" not in fine


@pytest.mark.parametrize(
    ("path", "nothing"),
    [("/groups", "No open group."), ("/queues", "No queue holds dead letters."), ("/queues", "No dead letters."),
     ("/status", "No tasks.")],
)  # fmt: skip
async def test_what_was_not_answered_is_shown_as_unknown(path: str, nothing: str) -> None:
    liar = Refusing("plain")
    async with logged_in(console(liar)) as client:
        await client.get("/")  # from now on it is known who this is
        liar.refused = path
        page = (await client.get("/")).text
    assert ("Unknown: see above." in page, nothing in page, "No problem is known" in page) == (True, False, False)


@pytest.mark.parametrize("path", ["/groups", "/letters", "/queues"])
async def test_the_overview_says_which_part_of_it_nobody_answered(path: str) -> None:
    liar = Refusing("plain")
    liar.refused = path
    async with logged_in(console(liar)) as client:
        assert '<div class="note warn" role="alert">there is no plain' in (await client.get("/")).text


async def test_tasks_have_a_next_page() -> None:
    async with logged_in(console(Liar("plain"))) as client:
        page = (await client.get("/tasks?sort=sent")).text
        after = (await client.get("/tasks?cursor=7.a")).text
    assert re.search(r'href="/tasks\?sort=sent&amp;cursor=[0-9]+.5cc63cdf0e4f">Next page', page)
    assert ("First page" in page, "First page" in after) == (False, True)


async def test_a_page_that_is_not_there_asks_nobody_to_log_in_again() -> None:
    async with logged_in(console(Liar())) as client:
        nowhere = await client.get("/nowhere")
        assert (nowhere.status_code, "Log in" in nowhere.text) == (404, False)


LISTS = (
    "/", "/?list=lying", "/tasks/5cc6", "/groups", "/letters", "/tasks", "/policies", "/explain?queue=q", "/audit",
)  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "json"])
async def test_every_list_is_a_file_too(form: str) -> None:
    async with logged_in(console(Liar("=1+1"))) as client:
        for path in LISTS:
            answer = await client.get(f"{path}{'&' if '?' in path else '?'}format={form}")
            assert (answer.status_code, answer.headers["content-disposition"][:11]) == (200, "attachment;")
            if form == "csv":
                rows = list(csv.reader(io.StringIO(answer.text)))
                assert not any(cell.startswith("=") for row in rows for cell in row)
                assert any(cell == "'=1+1" for row in rows for cell in row)
            else:
                assert "=1+1" in answer.text
                assert answer.json()


async def test_a_header_of_a_megabyte_is_shown_by_its_beginning() -> None:
    liar = Liar()
    liar.header = "A" * (1 << 20)
    async with logged_in(console(liar)) as client:
        page = await client.get("/letters/4f2445e91123")
    assert page.status_code == 200
    assert len(page.content) < 400_000
    assert "more characters)" in page.text


class Nested(Liar):
    """A letter with this body."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body = body

    def answers(self, path: str) -> dict[str, Any] | None:
        answer = super().answers(path)
        for letter in (answer or {}).get("letters", []) if path != "/letters" else []:
            letter["body"] |= self.body
        return answer


@pytest.mark.parametrize("depth", [64, 65, 900, 955, 1400, 1495])
async def test_a_letter_whose_json_is_nested_deeply_has_its_page(depth: int) -> None:
    liar = Nested(explained(stored=("inline", "ab", "application/json", of_depth(depth))))
    liar.header = "A"
    async with logged_in(console(liar)) as client:
        pages = [await client.get(f"/letters/4f2445e91123{part}") for part in ("", "/edit", "?format=json")]
    assert [page.status_code for page in pages] == [200] * 3
    assert max(len(page.content) for page in pages) < 10_000_000


async def test_a_header_that_is_nested_deeply_is_shown_as_it_is() -> None:
    class Forged(Liar):
        def answers(self, path: str) -> dict[str, Any] | None:
            answer = super().answers(path)
            for letter in (answer or {}).get("letters", []) if path != "/letters" else []:
                letter["event"]["headers"] = {f"x-{depth}": "[" * depth + "]" * depth for depth in (30, 900, 5000)}
            return answer

    async with logged_in(console(Forged())) as client:
        page = await client.get("/letters/4f2445e91123")
    assert (page.status_code, "[" * 900 in page.text) == (200, True)


async def test_what_a_lease_did_to_a_letter_is_told_and_leads_to_no_task() -> None:
    async with logged_in(console(Liar())) as client:
        page = harmless(await client.get("/letters/4f2445e91123"))
        text = (await client.get("/letters/4f2445e91123")).text
    assert text.count(f"lease {LEASE}") == 3
    leads = [attrs["href"] for tag, attrs in page.elements if tag == "a" and "/tasks/" in (attrs.get("href") or "")]
    assert leads, "of the steps that a task made"
    assert not any(LEASE in (link or "") for link in leads)


async def test_an_answer_that_has_no_end_costs_only_its_page() -> None:
    liar = Liar()
    app = console(liar)
    async with logged_in(app) as client:
        liar.padding = MAX_ANSWER_BYTES
        page = await client.get("/groups")
        assert (page.status_code, f"over {MAX_ANSWER_BYTES} bytes" in page.text) == (502, True)
        harmless(page)
        liar.padding = 0
        assert (await client.get("/groups")).status_code == 200


async def test_nobody_sees_or_changes_anything_without_a_login() -> None:
    liar = Liar("the secret")
    async with browser(console(liar)) as client:
        for path in PATHS:
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"][:6]) == (303, "/login"), path
            assert "secret" not in answer.text
        for path in CHANGES:
            answer = await client.post(path, data={"csrf": "x"})
            assert answer.status_code == 401, path
        live = await client.get("/", headers={"hx-request": "true"})
        assert (live.status_code, live.headers["hx-redirect"]) == (401, "/login")
    assert liar.asked == []


@pytest.mark.parametrize("secure", [False, True])
async def test_a_login_gives_a_cookie_that_no_script_and_no_other_site_has(*, secure: bool) -> None:
    async with browser(console(Liar(), secure=secure)) as client:
        answer = await client.post("/login", data={"token": TOKEN, "next": "/letters?q=a"})
    cookie = answer.headers["set-cookie"]
    assert answer.headers["location"] == "/letters?q=a"
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {*cookie.split("; ")}
    assert ("Secure" in cookie, cookie.startswith("__Host-")) == (secure, secure)
    assert TOKEN not in str(answer.headers)
    assert "max-age" not in cookie.lower()


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/\r\nx: y"]
)
async def test_a_login_leads_nowhere_else(wanted: str) -> None:
    async with browser(console(Liar())) as client:
        page = await client.get("/login", params={"next": wanted})
        assert "evil" not in page.text
        answer = await client.post("/login", data={"token": TOKEN, "next": wanted})
    assert answer.headers["location"] == "/"


async def test_wrong_tokens_are_told_and_soon_slowed_down() -> None:
    async with browser(console(Liar())) as client:
        for token in ("wrong-token-of-somebody", "ümlaut", "x" * 5000, ""):
            page = await client.post("/login", data={"token": token})
            assert page.status_code == 401
            assert not token or token not in page.text
            assert "set-cookie" not in page.headers
            harmless(page)
        pages = [await client.post("/login", data={"token": token}) for token in ("wrong", "wrong", "")]
    assert ["too many tries" in page.text for page in pages] == [False, True, True]


async def test_a_right_token_is_let_in_whatever_others_of_its_address_have_tried() -> None:
    """One person who typed a wrong token, or a stranger, kept out all who came by the same proxy."""
    async with browser(console(Liar())) as client:
        for _ in range(3 * int(LOGINS)):
            assert (await client.post("/login", data={"token": "wrong"})).status_code == 401
        answer = await client.post("/login", data={"token": TOKEN})
        assert (answer.status_code, "set-cookie" in answer.headers) == (303, True)
        assert "too many tries" in (await client.post("/login", data={"token": "wrong"})).text, "nothing is given back"


class Busy(Liar):
    """It answers when it may, and counts who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self.waiting = asyncio.Event(), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.waiting += 1
        await self.may.wait()
        await super().__call__(scope, receive, send)


async def test_beyond_its_limit_an_address_has_few_tries_at_once_and_others_have_theirs() -> None:
    busy = Busy()
    app = console(busy, proxies=TrustedProxies("127.0.0.1"))
    async with browser(app) as client:

        def tried(address: str, token: str) -> asyncio.Task[httpx.Response]:
            by_proxy = {"x-forwarded-for": f"192.0.2.1, {address}"}
            return asyncio.create_task(client.post("/login", data={"token": token}, headers=by_proxy))

        flood = [tried("203.0.113.9", "wrong") for _ in range(int(LOGINS) + BEYOND_AT_ONCE)]
        await soon(lambda: busy.waiting == len(flood))
        assert "too many tries" in (await tried("203.0.113.9", TOKEN)).text
        assert busy.waiting == len(flood), "nobody was asked"
        other = tried("203.0.113.10", TOKEN)
        await soon(lambda: busy.waiting == len(flood) + 1)
        busy.may.set()
        assert (await other).status_code == 303
        assert ["too many" in page.text for page in await asyncio.gather(*flood)].count(True) == BEYOND_AT_ONCE
        assert (await tried("203.0.113.9", TOKEN)).status_code == 303


async def test_right_tokens_are_not_counted_as_tries_of_their_address() -> None:
    """Behind a proxy all people have one; so have tests that log in one after the other."""
    async with browser(console(Liar())) as client:
        for _ in range(3 * int(LOGINS)):
            assert (await client.post("/login", data={"token": TOKEN})).status_code == 303
        pages = [await client.post("/login", data={"token": "wrong"}) for _ in range(int(LOGINS) + 1)]
    assert ["too many tries" in page.text for page in pages] == [False] * int(LOGINS) + [True]


async def test_a_token_that_is_taken_back_ends_its_sessions_at_once() -> None:
    liar = Liar()
    app = console(liar)
    async with logged_in(app) as client:
        liar.tokens.clear()
        assert (await client.get("/groups")).headers["location"].startswith("/login")


async def test_who_logs_out_is_out_whoever_has_the_cookie() -> None:
    async with logged_in(console(Liar())) as client:
        page = await client.get("/groups")
        kept = client.cookies["dlx_console"]
        assert (await client.post("/logout", data={"csrf": csrf(page.text)})).status_code == 303
        client.cookies.set("dlx_console", kept)
        assert (await client.get("/groups")).status_code == 303


BAD: list[dict[str, Any]] = [
    {"data": {}},
    {"data": {"csrf": "guessed"}},
    {"data": {"csrf": "TRUE"}, "headers": {"origin": "https://evil.example"}},
    {"data": {"csrf": "TRUE"}, "headers": {"origin": "null"}},
    {"data": {"csrf": "TRUE"}, "headers": {"sec-fetch-site": "cross-site"}},
    {"data": {"csrf": "TRUE"}, "headers": {"sec-fetch-site": "same-site"}},
    {"json": {"csrf": "TRUE"}},
    {"content": b"csrf=" + b"x" * MAX_FORM_BYTES, "headers": {"content-type": "application/x-www-form-urlencoded"}},
]


@pytest.mark.parametrize("given", BAD)
@pytest.mark.parametrize("path", CHANGES)
async def test_a_change_is_made_by_our_own_forms_only(path: str, given: dict[str, Any]) -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        word = csrf((await client.get("/groups")).text)
        request = {**given, "data": {"csrf": word}} if given.get("data", {}).get("csrf") == "TRUE" else given
        answer = await client.post(path, **request)
        assert answer.status_code in {403, 413, 415}
        harmless(answer)
        assert liar.asked == []
        assert (await client.get("/groups")).status_code == 200, "the session stays"


@pytest.mark.parametrize("host", ["evil.example", "router.evil.example", "127.0.0.1.evil.example", ""])
async def test_a_name_of_somebody_else_is_refused(host: str) -> None:
    async with logged_in(console(Liar("the secret"))) as client:
        page = await client.get("/groups", headers={"host": host})
    assert page.status_code == 403
    assert "secret" not in page.text


async def test_a_link_from_elsewhere_leads_there_after_all() -> None:
    """SameSite=Strict keeps the cookie back, so our own page asks again."""
    app = console(Liar())
    async with browser(app) as client:
        page = await client.get("/groups/g1-1?x=%3Cb%3E", headers={"sec-fetch-site": "cross-site"})
    assert page.status_code == 200
    harmless(page)
    assert '<meta http-equiv="refresh" content="0;url=/groups/g1-1?x=%3Cb%3E">' in page.text


async def test_without_tokens_only_this_machine_gets_in() -> None:
    liar = Liar()
    liar.tokens = {""}
    async with browser(console(liar)) as client:
        page = await client.get("/groups")
        assert page.status_code == 200
        assert "Log out" not in page.text
        answer = await client.post("/groups/g1-1", data={"csrf": csrf(page.text), "state": "resolved"})
        assert (answer.status_code, liar.asked) == (303, [("PATCH", "/groups/g1-1", {"state": "resolved"})])
    async with browser(console(liar, is_loopback=False)) as client:
        assert (await client.get("/groups")).status_code == 303


async def test_a_page_of_elsewhere_begins_no_session_and_ends_none() -> None:
    """It comes without the cookie of the session that there is, and its answer would put another one in its place."""
    liar = Liar()
    liar.tokens = {""}
    async with browser(console(liar)) as client:
        word = csrf((await client.get("/groups")).text)
        for site in ("cross-site", "same-site"):
            led = await client.get("/groups", headers={"sec-fetch-site": site, "cookie": ""})
            assert (led.status_code, "set-cookie" in led.headers) == (200, False)
            assert 'http-equiv="refresh"' in led.text
        answer = await client.post("/groups/g1-1", data={"csrf": word, "state": "resolved"})
    assert answer.status_code == 303, "the form that was open before"


async def test_who_may_only_look_sees_no_buttons() -> None:
    for role, sees in (("viewer", False), ("operator", True)):
        async with logged_in(console(Liar("q", role))) as client:
            pages = [
                (await client.get(path)).text for path in ("/letters/4f2445e91123", "/groups/g1-1", "/tasks/5cc6", "/")
            ]
        words = ("Send back</button>", "Resolve</button>", "Type <strong>3", "Redrive…</a>")
        assert [word in page for word, page in zip(words, pages, strict=True)] == [sees] * 4


async def test_more_than_one_letter_goes_only_where_their_number_is_typed() -> None:
    liar = Liar("q")
    async with logged_in(console(liar)) as client:
        page = await client.get("/tasks/5cc63cdf0e4f?vhost=q")
        word = csrf(page.text)
        for typed in ("", "2", "4", "three", "-3", "3.0", "٣", "9" * 40):
            answer = await client.post("/tasks/5cc63cdf0e4f/start?vhost=q", data={"csrf": word, "letters": typed})
            assert answer.status_code == 422, typed
            harmless(answer)
        assert liar.asked == []
        given = {"csrf": word, "letters": "3", "rate": "7", "canary": "1", "watch": "5", "max_dead": "0"}
        answer = await client.post("/tasks/5cc63cdf0e4f/start?vhost=q", data=given)
    assert answer.headers["location"] == "/tasks/5cc63cdf0e4f?vhost=q"
    ((method, path, asked),) = liar.asked
    assert (method, path) == ("POST", "/tasks")
    assert (asked["limit"], asked["cutoff_ms"], asked["rate"]) == (3, 1_700_000_000_000, 7)
    assert asked["canary"] == {"first": 1, "watch_s": 5, "max_dead_percent": 0}
    assert "dry_run" not in asked


def fields_of(page: str, action: str) -> dict[str, str]:
    """What a browser sends of the form with this in its address, where nobody types; a box that must be is ticked."""
    elements = Read(page).elements
    at = next(n for n, (tag, attrs) in enumerate(elements) if tag == "form" and action in (attrs["action"] or ""))
    inside = itertools.takewhile(lambda element: element[0] != "form", elements[at + 1 :])
    inputs = [attrs for tag, attrs in inside if tag == "input"]
    sent = [attrs for attrs in inputs if attrs.get("type") != "checkbox" or {"checked", "required"} & attrs.keys()]
    return {attrs["name"] or "": attrs.get("value") or "" for attrs in sent}


PLANNED: dict[str, Any] = {
    "canary": {"first": 2, "watch_s": 90.5, "max_dead_percent": 12.5},
    "rate": 20.0,
    "to": {"exchange": "", "routing_key": "other"},
}


@pytest.mark.parametrize("objection", ["", "it has consumers"])
@pytest.mark.parametrize("known", [False, True])
async def test_a_dry_run_is_started_as_it_was_asked_and_as_its_command_says(objection: str, *, known: bool) -> None:
    """Its canary was shown, and was not in what the button started."""
    liar = Counted("redrive", 3)
    liar.objection = objection
    liar.changed = {"spec": task("q")["spec"] | PLANNED | {"not_a_dead_letter_queue": known}}
    async with logged_in(console(liar)) as client:
        page = (await client.get("/tasks/5cc63cdf0e4f?vhost=q")).text
        given = fields_of(page, "/start") | {"letters": "3"}
        assert (await client.post("/tasks/5cc63cdf0e4f/start?vhost=q", data=given)).status_code == 303
    ((_, _, asked),) = liar.asked
    assert {name: asked[name] for name in PLANNED} == PLANNED
    assert (asked["limit"], asked["not_a_dead_letter_queue"]) == (3, known or bool(objection))
    lines = [unescape(line) for line in re.findall(r'<p class="shell">.*?<code>(.*?)</code>', page)]
    params = next(params for line in lines if not (params := parsed(line)).get("dry_run", True))
    shown = {"first": params["canary"], "watch_s": params["watch"], "max_dead_percent": params["max_dead"]}
    assert (shown, params["to_queue"]) == (asked["canary"], "other")
    for name in ("queue", "vhost", "group", "ids", "limit", "rate"):
        assert params[name] == asked[name], name
    assert (params["filter_"], params["known"]) == (asked["filter"], asked["not_a_dead_letter_queue"])


async def test_the_page_of_an_export_shows_a_command_that_takes_no_letter_away() -> None:
    liar = Liar("q")
    liar.changed = {"spec": task("q")["spec"] | {"kind": "export", "dry_run": False}}
    async with logged_in(console(liar)) as client:
        page = (await client.get("/tasks/5cc63cdf0e4f?vhost=q")).text
    assert "dlx-router letters export --from q" in page
    assert "redrive start" not in page


class Counted(Liar):
    """A dry run of this kind that counted so many letters."""

    def __init__(self, kind: str, sent: int) -> None:
        super().__init__("q")
        self.kind, self.sent, self.objection = kind, sent, "q"

    def answers(self, path: str) -> dict[str, Any] | None:
        answer = super().answers(path)
        if answer is not None and path.startswith("/tasks/") and "spec" in answer:
            answer["spec"]["kind"], answer["counts"]["sent"] = self.kind, self.sent
        if answer is not None and path == "/tasks/preview":
            answer["objection"] = self.objection
        return answer


@pytest.mark.parametrize(("kind", "sent"), [("redrive", 0), ("discard", 0), ("export", 3)])
async def test_a_dry_run_that_counted_nothing_or_for_a_script_starts_nothing(kind: str, sent: int) -> None:
    """A limit of 0 is none at all: what came into the queue meanwhile would go."""
    liar = Counted(kind, sent)
    async with logged_in(console(liar)) as client:
        page = await client.get("/tasks/5cc63cdf0e4f?vhost=q")
        harmless(page)
        given = {"csrf": csrf(page.text), "letters": str(sent)}
        answer = await client.post("/tasks/5cc63cdf0e4f/start?vhost=q", data=given)
        harmless(answer)
    assert (page.status_code, answer.status_code, liar.asked) == (200, 409, [])
    assert "/start?" not in page.text


async def test_spaces_around_the_name_of_a_queue_are_part_of_it() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        page = (await client.get("/redrive", params={"queue": " q ", "vhost": "plain"})).text
        form = {"csrf": csrf(page), "queue": " q ", "vhost": "plain", "filter": " true ", "to_queue": "elsewhere "}
        assert (await client.post("/redrive", data=form)).status_code == 303
        lists = [(await client.get(path, params={"queue": " q "})).text for path in ("/letters", "/groups", "/explain")]
    assert ['name="queue" value=" q "' in text for text in (page, *lists)] == [True] * 4
    ((_, path, spec),) = liar.asked
    assert (path, spec["queue"], spec["filter"]) == ("/tasks", " q ", "true")
    assert spec["to"] == {"exchange": "", "routing_key": "elsewhere "}


BODIES = (
    st.binary(max_size=40)
    | st.text(max_size=40).map(str.encode)
    | st.from_regex(r'\A\{"id": ?[0-9.]{1,30}\}\r?\Z').map(str.encode)
)


@given(BODIES)
@example(b'{"id": 1, "id": 2}')
@example(b'{"price": 19.90,  "id": 12345678901234567890.123}')
@example('{"to": "Zürich"}'.encode("utf-16"))
@example(b"\xef\xbb\xbf{}")
@example(b"\n\nlines\r\n")
@example(b"")
def test_what_an_edit_begins_with_is_the_stored_body_or_is_not_shown(content: bytes) -> None:
    """JSON was written anew for the form: whoever changed a word of it changed digits, names and the encoding too."""
    stored = ("inline", "ab", "application/json", content)
    text = editable(body_of(letter_with(stored=stored), as_hex=True))
    if text is not None:
        field = text.replace("\n", "\r\n")  # as browsers send lines
        assert field.replace("\r\n", "\n").encode() == content


@pytest.mark.parametrize("content", [b'{"price": 19.90, "id": 1, "id": 2}', b"one\nline", b"\n{}\n", b""])
def test_utf_8_without_control_characters_can_be_edited(content: bytes) -> None:
    stored = ("inline", "ab", "application/json", content)
    assert editable(body_of(letter_with(stored=stored), as_hex=True)) == content.decode()


@pytest.mark.parametrize("stored", [("head", "ab", "text/plain", b"begin"), ("hash", "ab", None, None), None])
def test_a_body_that_is_not_whole_cannot_be_edited(stored: Any) -> None:
    assert editable(body_of(letter_with(stored=stored), as_hex=True)) is None


class Unredacted(Liar):
    def answers(self, path: str) -> dict[str, Any] | None:
        answer = super().answers(path)
        for letter in (answer or {}).get("letters", []) if path != "/letters" else []:
            letter["event"]["redacted"] = []
        return answer


async def test_a_body_that_nobody_changed_is_not_sent() -> None:
    liar = Unredacted("one\nline")
    async with logged_in(console(liar)) as client:
        page = (await client.get("/letters/4f2445e91123/edit")).text
        was = re.search('name="was" value="([0-9a-f]{64})"', page)
        assert was is not None
        form = {"csrf": csrf(page), "vhost": "/", "queue": "q", "was": was[1]}
        unchanged = {**form, "text": "one\r\nline"}  # as browsers send lines
        assert (await client.post("/letters/4f/edit", data=unchanged)).status_code == 422
        assert (await client.post("/letters/4f/edit", data={**unchanged, "headers": "a=1\nb"})).status_code == 303
        assert (await client.post("/letters/4f/edit", data={**form, "text": "another"})).status_code == 303
    assert [(body.get("text"), body["headers"]) for _, _, body in liar.asked] == [
        (None, {"a": "1", "b": None}),
        ("another", {}),
    ]


@pytest.mark.slow
async def test_nothing_that_people_write_breaks_a_page() -> None:
    async with logged_in(console(Liar())) as client:
        for path in PATHS:
            for text in HOSTILE:
                raw = text.encode("utf-8", "surrogatepass").decode("latin-1")
                for name in ("queue", "vhost", "cursor", "offset", "format", "q", "filter"):
                    page = await client.get(path, params={name: raw})
                    assert page.status_code < 500, (path, name, text)
        for path in ("/nowhere", "/letters/..%2f..", "/at/two/", "/static/../app.py", "/static/nothing.js"):
            assert (await client.get(path)).status_code == 404


async def test_several_routers_have_addresses_of_their_own() -> None:
    liars = {"north": Liar("of-north"), "south": Liar("of-south")}
    routers = [RouterApi(name, f"http://{name}", httpx.ASGITransport(liar)) for name, liar in liars.items()]
    async with logged_in(create_app(routers, Hosts())) as client:
        both = (await client.get("/")).text
        assert ("of-north" in both, "of-south" in both) == (True, True)
        south = (await client.get("/at/south/groups")).text
        assert ("of-north" in south, "of-south" in south) == (False, True)
        assert 'href="/at/south/letters"' in south
        liars["north"].tokens.clear()
        page = await client.get("/at/north/groups")
        assert page.status_code == 401
        assert (await client.get("/at/south/groups")).status_code == 200, "the other router still knows the token"


async def test_one_letter_is_deleted_only_where_somebody_says_that_they_mean_it() -> None:
    liar = Liar("q")
    async with logged_in(console(liar)) as client:
        page = (await client.get("/letters/4f2445e91123")).text
        assert 'action="/letters/4f2445e911230000' in page
        form = {"csrf": csrf(page), "vhost": "/", "queue": "DLQ.q"}
        assert (await client.post("/letters/4f/discard", data=form)).status_code == 422
        assert liar.asked == []
        assert (await client.post("/letters/4f/discard", data={**form, "sure": "1"})).status_code == 303
    ((method, path, asked),) = liar.asked
    assert (method, path, asked["kind"], asked["ids"]) == ("POST", "/tasks", "discard", ["4f"])
    async with logged_in(console(Liar("q", "viewer"))) as client:
        assert "Delete for good" not in (await client.get("/letters/4f2445e91123")).text


class Several(Liar):
    """Three queues, the second one without an oldest letter."""

    def answers(self, path: str) -> dict[str, Any] | None:
        answer = super().answers(path)
        if path == "/queues" and answer is not None:
            (row,) = answer["failed"]
            many = [("b", 3, 30, 5), ("a", 1, None, 9), ("c", 2, 10, 7)]
            answer["failed"] = [
                {**row, "failed_queue": name, "states": {"dead": n}, "oldest_ms": ms, "last_ms": last}
                for name, n, ms, last in many
            ]
        return answer


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", "acb"), ("-last", "acb"), ("last", "bca"), ("queue", "abc"), ("-queue", "cba"), ("dead", "acb"),
        ("-dead", "bca"), ("oldest", "cba"), ("-oldest", "bca"), ("nonsense", "acb"), ("-", "acb"), ("--dead", "acb"),
    ],
)  # fmt: skip
async def test_a_list_comes_in_the_order_that_its_address_asks_for(sort: str, order: str) -> None:
    async with logged_in(console(Several())) as client:
        rows = (await client.get("/", params={"sort": sort, "format": "json"})).json()
        page = (await client.get("/", params={"sort": sort, "x": "<y>"})).text
    assert "".join(row["failed_queue"] for row in rows) == order
    directions = [str(attrs["aria-sort"]) for tag, attrs in Read(page).elements if tag == "th" and "aria-sort" in attrs]
    assert sorted(directions)[:1] != ["none"]
    assert directions.count("none") == len(directions) - 1, "one column says that it is in order"
    assert "x=%3Cy%3E" in page, "what else the address says stays"


async def test_a_column_is_turned_by_its_second_click_and_pages_keep_the_order() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        assert 'href="/tasks?vhost=a&amp;sort=-sent"' in (await client.get("/tasks?vhost=a")).text
        assert 'href="/tasks?vhost=a&amp;sort=sent"' in (await client.get("/tasks?vhost=a&sort=-sent")).text
        letters = (await client.get("/letters?queue=q&sort=last")).text
        assert 'href="/letters?queue=q&amp;sort=last&amp;cursor=~e30"' in letters.replace("%7E", "~")
        groups = (await client.get("/groups?sort=-deaths&offset=50")).text
        assert 'href="/groups?sort=-deaths&amp;offset=50"' in groups
        assert 'href="/groups?sort=-deaths"' in groups, "the first page"
        audit = (await client.get("/audit?cursor=9.x")).text
        assert 'href="/audit?cursor=7.a"' in audit


async def test_what_nobody_could_be_asked_about_is_said_and_for_how_long_nobody_leads() -> None:
    async with logged_in(console(Liar("the <vhost>"))) as client:
        for path in ("/groups", "/letters", "/audit"):
            page = (await client.get(path)).text
            assert "Not all is here" in page
            assert "Vhost the &lt;vhost&gt;: the router&#39;s index does not read" in page
        assert "nobody leads for 12 s" in (await client.get("/")).text


async def test_a_note_is_kept_as_it_was_written_and_an_empty_one_is_refused() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        word = csrf((await client.get("/letters/4f2445e91123")).text)
        fields = {"csrf": word, "queue": "q", "text": "  first line\r\n<b>second</b> "}
        kept = await client.post("/letters/4f/comment", data=fields)
        assert (kept.status_code, kept.headers["location"]) == (303, "/letters/4f?queue=q")
        assert liar.asked == [("POST", "/letters/4f/comments", {"text": "first line\n<b>second</b>"})]
        empty = await client.post("/letters/4f/comment", data={**fields, "text": " \n "})
        assert (empty.status_code, "note is empty" in empty.text, len(liar.asked)) == (422, True, 1)


async def test_notes_stand_beside_the_letter_and_in_its_journey_with_the_rules_that_decided() -> None:
    async with logged_in(console(Liar("a <b>"))) as client:
        page = (await client.get("/letters/4f2445e91123")).text
    assert page.count("a &lt;b&gt;</p>") >= 1
    assert "<strong>noted</strong>" in page
    assert "a &lt;b&gt;: a &lt;b&gt;, <span" in page
