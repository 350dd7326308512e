"""The console in a browser: by mouse from a failing queue to a redrive, readable for everybody, without an error.

Needs playwright (extra `console-dev`) and a Chromium of the system; skipped where one is absent.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.console.conftest import Desk
from tests.console.liar import TOKEN

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: install the extra console-dev")
CHROMIUM: Final = shutil.which("chromium") or ""
AXE: Final = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
SHOTS: Final = os.environ.get("DLX_ROUTER_TEST_SHOTS", "")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no chromium"),
    pytest.mark.usefixtures("newest"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


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

    def _heard(self, said: Any) -> None:
        if said.type in {"error", "warning"}:
            self.complaints.append(said.text)

    def log_in(self) -> None:
        self.page.goto("/")
        self.page.get_by_label("Token").fill(TOKEN)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="What dies now").wait_for()

    def look(self, name: str) -> None:
        """Nothing hides, sticks out or cannot be read."""
        self.page.evaluate(f"{AXE};0")
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert len(found["passes"]) > 10, "axe looked at nothing"
        broken = [(one["id"], [node["target"] for node in one["nodes"]]) for one in found["violations"]]
        assert broken == [], name
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            f"{name} is wider than the screen"
        )
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)

    def leave(self) -> None:
        self.context.close()
        assert (self.complaints, self.elsewhere) == ([], [])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(desk: Desk, chromium: Any, theme: str, width: int) -> None:
    queue = f"look.{theme}{width}"
    desk.kill(queue, 2, error="<img src=x onerror=alert(1)> \u202eevil")
    person = Person(chromium, desk.url, theme, width)
    person.page.goto("/login")
    person.look(f"login-{width}-{theme}")
    person.log_in()
    letter = desk.rows("/letters", queue=queue)[0]["id"]
    group = next(one["id"] for one in desk.rows("/groups") if one["failed_queue"] == queue)
    for path in (
        "/",
        "/groups",
        f"/groups/{group}",
        "/letters",
        f"/letters/{letter}",
        f"/letters/{letter}/edit",
        f"/redrive?queue=DLQ.{queue}",
        "/tasks",
        "/policies",
        f"/explain?queue={queue}",
        "/audit",
    ):
        assert person.page.goto(path).status == 200, path
        name = (
            path.strip("/")
            .partition("?")[0]
            .replace(str(letter), "letter")
            .replace(str(group), "group")
            .replace("/", "-")
        )
        person.look(f"{name or 'overview'}-{width}-{theme}")
    person.leave()


def test_a_newcomer_with_the_mouse_alone_sends_back_what_failed(desk: Desk, chromium: Any) -> None:
    desk.kill("mouse.orders", 4, error="mouse timed out")
    person = Person(chromium, desk.url, "light", 1440)
    page = person.page
    person.log_in()
    page.goto("/groups")
    page.get_by_role("row", name="mouse.orders").get_by_role("link", name="TimeoutError").click()
    page.get_by_role("link", name="Redrive these…").first.click()
    page.get_by_role("button", name="Count them").click()
    number = page.get_by_label("to send back as many letters")
    number.wait_for(timeout=20_000)  # it comes by itself when all are counted
    person.look("dry-run")
    number.fill("4")
    page.get_by_role("button", name="Send back").click()
    page.locator(".badge", has_text="done").wait_for(timeout=20_000)
    person.look("done")
    assert desk.amqp.depth("mouse.orders") == 4
    person.leave()


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


def test_the_theme_that_a_person_chose_wins_over_the_system(desk: Desk, chromium: Any) -> None:
    person = Person(chromium, desk.url, "light", 1440)
    person.log_in()
    ground = "getComputedStyle(document.body).backgroundColor"
    bright = person.page.evaluate(ground)
    person.page.get_by_role("button", name="Theme").click()
    person.page.locator("html[data-theme=dark]").wait_for()
    assert person.page.evaluate(ground) != bright
    person.leave()
