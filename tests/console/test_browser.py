"""The console in a browser: by mouse from a failing queue to a redrive, readable for everybody, without an error.

Needs playwright (extra `console-dev`) and a Chromium of the system; skipped where one is absent.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import NAMED
from tests.console.conftest import Desk
from tests.console.liar import TOKEN

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: install the extra console-dev")
CHROMIUM: Final = shutil.which("chromium") or ""
AXE: Final = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
SHOTS: Final = os.environ.get("DLX_ROUTER_TEST_SHOTS", "")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

once = pytest.mark.usefixtures("newest")  # the browser is the same whatever the broker
FOCUSED: Final = """() => {
  const one = document.activeElement, label = one.labels && one.labels[0];
  const name = one.getAttribute("aria-label") || (label && label.innerText) || one.innerText || one.value || "";
  return [name.trim(), getComputedStyle(one).outlineStyle];
}"""
WIDTHS: Final = (360, 1440)
MOST_OF_A_KIND: Final = 3
COUNT: Final = "to send back as many letters"
SPRING: Final = 'body("/coupon") == "SPRING"'


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> None:
    """On the oldest and on the newest broker of several."""
    if NAMED and request.node.callspec.params.get("broker") not in {NAMED[0], NAMED[-1]}:
        pytest.skip(f"runs on {NAMED[0]} and {NAMED[-1]}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Person:
    """Somebody with a browser; what it complains about is kept."""

    def __init__(self, browser: Any, url: str, theme: str, width: int, **how: Any) -> None:
        self.context = browser.new_context(
            base_url=url, color_scheme=theme, viewport={"width": width, "height": 900}, **how
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: None if asked.url.startswith(url) else self.elsewhere.append(asked.url))

    def _heard(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def log_in(self) -> None:
        self.page.goto("/")
        self.page.get_by_label("Token").fill(TOKEN)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="What dies now").wait_for()

    def look(self, name: str) -> None:
        """Nothing hides, sticks out or cannot be read."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(f"{AXE};0")
        report = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert len(report["passes"]) > 10, "axe looked at nothing"
        broken = [
            (violation["id"], [node["target"] for node in violation["nodes"]]) for violation in report["violations"]
        ]
        assert broken == [], name
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            f"{name} is wider than the screen"
        )
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)

    def look_at_all_widths(self, name: str) -> None:
        """The same page on a phone and on a desk; then it is as wide as it was."""
        was = self.page.viewport_size
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            self.look(f"{name}-{width}")
        self.page.set_viewport_size(was)

    def tab_to(self, words: str) -> None:
        """By the Tab key alone to what is called so; each stop on the way can be seen."""
        for _ in range(150):
            self.page.keyboard.press("Tab")
            name, outline = self.page.evaluate(FOCUSED)
            assert outline != "none", f"{name!r} has the focus, and nobody sees it"
            if words in name:
                return
        raise AssertionError(f"no Tab leads to {words!r}")

    def await_count(self) -> None:
        """The field for the number of letters comes by itself, when all are counted."""
        self.await_shown(self.page.get_by_label(COUNT))

    def await_shown(self, what: Any) -> None:
        """It is on the page; else the page says what is there instead."""
        try:
            what.wait_for(timeout=60_000)
        except playwright.TimeoutError:
            raise AssertionError(f"{self.page.url}: {self.page.inner_text('main')[:1000]}") from None

    def leave(self) -> None:
        self.context.close()
        asked_for = ("404 (Not Found)",)  # /nowhere
        expected = [complaint for complaint in self.complaints if not any(words in complaint for words in asked_for)]
        assert (expected, self.elsewhere) == ([], [])


@pytest.mark.slow
@once
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(desk: Desk, chromium: Any, theme: str) -> None:
    queue = f"look.{theme}"
    desk.kill(queue, 2, error="<img src=x onerror=alert(1)> \u202eevil")
    person = Person(chromium, desk.url, theme, WIDTHS[0])
    person.page.goto("/login")
    person.look_at_all_widths(f"login-{theme}")
    person.log_in()
    letter = desk.rows("/letters", queue=queue)[0]["id"]
    group = next(row["id"] for row in desk.rows("/groups") if row["failed_queue"] == queue)
    form = {"queue": f"DLQ.{queue}", "vhost": desk.vhost.name, "kind": "redrive", "filter": SPRING}
    counted = desk.send("/redrive", "/redrive", **form).headers["location"]
    for name, path in {
        "overview": "/",
        "groups": "/groups",
        "group": f"/groups/{group}",
        "letters": "/letters",
        "letter": f"/letters/{letter}",
        "edit": f"/letters/{letter}/edit",
        "redrive": f"/redrive?queue=DLQ.{queue}",
        "redrive-anywhere": "/redrive",
        "tasks": "/tasks",
        "task": counted,
        "policies": "/policies",
        "explain": f"/explain?queue={queue}",
        "explain-nothing": "/explain",
        "audit": "/audit",
        "overview-sorted": "/?sort=-dead",
        "letters-none": "/letters?q=nobodyhasthis&since_ms=2026-01-31T12:00:00",
        "nowhere": "/nowhere",
    }.items():
        status = person.page.goto(path).status
        assert status == (404 if path == "/nowhere" else 200), path
        person.look_at_all_widths(f"{name}-{theme}")
    person.page.goto(f"/letters?queue={queue}")
    shown = person.page.locator("time[title]").first.get_attribute("title")
    assert "GMT" in shown or "UTC" in shown, "the browser shows moments in its own zone"
    person.leave()


@pytest.mark.slow
@pytest.mark.usefixtures("ends")
def test_a_newcomer_with_the_mouse_alone_sends_back_what_failed(desk: Desk, chromium: Any) -> None:
    desk.kill("mouse.orders", 4, error="mouse timed out")
    person = Person(chromium, desk.url, "light", 1440)
    page = person.page
    person.log_in()
    page.get_by_role("link", name="mouse.orders").first.click()
    page.locator("td.main a").first.click()
    page.get_by_role("link", name="g1-").click()
    page.get_by_role("link", name="Redrive these…").first.click()
    page.get_by_label("Filter").fill(SPRING)
    page.get_by_role("button", name="Count them").click()
    person.await_count()
    person.look_at_all_widths("dry-run")
    page.get_by_label(COUNT).fill("2")
    page.get_by_role("button", name="Send back").click()
    page.locator(".badge", has_text="done").wait_for(timeout=60_000)
    person.look_at_all_widths("done")
    assert (desk.amqp.depth("mouse.orders"), desk.amqp.depth("DLQ.mouse.orders")) == (2, 2)
    person.leave()


@pytest.mark.slow
@pytest.mark.usefixtures("ends")
def test_with_the_keyboard_alone_too(desk: Desk, chromium: Any) -> None:
    desk.kill("keys.orders", 4, error="keys timed out")
    person = Person(chromium, desk.url, "dark", 1440)
    page, keys = person.page, person.page.keyboard
    page.goto("/")
    page.locator("input[name=token]:focus").wait_for()  # a browser gives it some time after the page has loaded
    keys.type(TOKEN)
    keys.press("Enter")
    page.get_by_role("heading", name="What dies now").wait_for()
    person.tab_to("To the content")
    person.tab_to("Groups")
    keys.press("Enter")
    page.get_by_role("heading", name="Groups").wait_for()
    person.tab_to("Failed queue")
    keys.type("keys.orders")
    keys.press("Enter")
    page.wait_for_url("**queue=keys.orders**")
    person.tab_to("TimeoutError")
    keys.press("Enter")
    page.get_by_role("heading", name="TimeoutError").wait_for()
    person.tab_to("Redrive these…")
    keys.press("Enter")
    page.get_by_role("heading", name="Redrive", exact=True).wait_for()
    person.tab_to("Filter")
    keys.type(SPRING)
    person.tab_to("Count them")
    keys.press("Enter")
    person.await_count()
    person.tab_to(COUNT)
    keys.type("2")
    person.tab_to("Send back")
    keys.press("Enter")
    page.locator(".badge", has_text="done").wait_for(timeout=60_000)
    assert (desk.amqp.depth("keys.orders"), desk.amqp.depth("DLQ.keys.orders")) == (2, 2)
    person.leave()


@pytest.mark.slow
@once
def test_no_link_of_any_page_leads_to_an_error(desk: Desk, chromium: Any) -> None:
    """All that is linked from the overview on, each kind of page a few times; nothing complains anywhere."""
    desk.kill("crawl.orders", 2, error="</pre><script>alert(1)</script>")
    person = Person(chromium, desk.url, "light", 1440)
    person.log_in()
    todo, kinds, seen = ["/"], Counter[str](), set[str]()
    while todo:
        path = todo.pop(0)
        kind = re.sub(r"[0-9a-f]{8,}|g1-\w+", "*", path.partition("?")[0])
        if path in seen or kinds[kind] >= MOST_OF_A_KIND or "format=" in path:
            continue
        seen.add(path)
        kinds[kind] += 1
        answer = person.page.goto(path)
        assert answer.status == 200, path
        assert answer.headers["content-security-policy"].startswith("default-src 'self'"), path
        links = person.page.evaluate("[...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href'))")
        todo += [link for link in links if link.startswith("/")]
    assert len(kinds) >= 11, kinds
    person.leave()


@once
def test_without_javascript_all_can_be_read_and_done(desk: Desk, chromium: Any) -> None:
    desk.kill("plain.orders", 1, error="plain timed out")
    person = Person(chromium, desk.url, "dark", 1440, java_script_enabled=False)
    page = person.page
    person.log_in()
    page.get_by_role("link", name="Letters", exact=True).click()
    page.get_by_label("Failed queue").fill("plain.orders")
    page.get_by_role("button", name="Search").click()
    page.locator("td.main a").first.click()
    page.get_by_role("button", name="Send back").click()
    page.get_by_role("heading", name="Send back").wait_for()
    desk.amqp.take("plain.orders", 20)
    person.leave()


@once
def test_the_theme_that_a_person_chose_wins_over_the_system(desk: Desk, chromium: Any) -> None:
    person = Person(chromium, desk.url, "light", 1440)
    person.log_in()
    ground = "getComputedStyle(document.body).backgroundColor"
    bright = person.page.evaluate(ground)
    person.page.get_by_role("button", name="Theme").click()
    person.page.locator("html[data-theme=dark]").wait_for()
    assert person.page.evaluate(ground) != bright
    person.leave()
