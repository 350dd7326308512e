"""The console over a real router: what its pages say is so, and what its buttons do is done."""

import time
from dataclasses import replace

import httpx
import pytest

from tests.console.conftest import Desk
from tests.console.liar import TOKEN
from tests.support.bulk import INBOX
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS


def page_with(desk: Desk, path: str, words: str) -> str:
    """The page, once these words stand there."""
    page = desk.web.get(path).text
    return page if words in page else ""


@pytest.mark.usefixtures("newest")
def test_every_page_answers_and_says_what_the_router_knows(desk: Desk) -> None:
    desk.kill("pages.orders", 3)
    overview = eventually(lambda: page_with(desk, "/", "DLQ.pages.orders"), 20)
    assert "Ready" in overview
    assert "olga · operator" in overview
    group = next(row for row in desk.rows("/groups") if row["failed_queue"] == "pages.orders")
    assert "order &lt;n&gt; timed out" in desk.web.get(f"/groups/{group['id']}").text
    letter = desk.rows("/letters", queue="pages.orders")[0]
    shown = desk.web.get(f"/letters/{letter['id']}").text
    assert "dead lettered" in shown
    assert "&#34;coupon&#34;: null" in shown
    assert "max-delivery-attempts" in desk.web.get("/explain?queue=pages.orders").text
    assert "a.yaml" in desk.web.get("/policies").text
    for path in ("/tasks", "/audit", "/redrive?queue=DLQ.pages.orders"):
        assert desk.web.get(path).status_code == 200, path
    wrong = desk.web.get("/letters", params={"since_ms": "yesterday"})
    assert (wrong.status_code, "since_ms" in wrong.text) == (200, True)
    wrong = desk.web.get("/letters", params={"q": "%%%"})
    assert wrong.status_code == 200
    assert "cannot be understood" in wrong.text


def test_a_filtered_redrive_from_the_form_to_the_letters(desk: Desk) -> None:
    desk.kill("flow.orders", 6)
    form = {
        "queue": "DLQ.flow.orders",
        "vhost": desk.vhost.name,
        "kind": "redrive",
        "filter": 'body("/coupon") == "SPRING"',
    }
    counted = desk.send("/redrive", "/redrive", **form)
    assert counted.status_code == 303, counted.text
    page = counted.headers["location"]
    eventually(lambda: "Type <strong>3</strong>" in desk.web.get(page).text or None, 20, every=0.2)
    assert desk.amqp.depth("flow.orders") == 0, "nothing moved"
    start = page.replace("?", "/start?")
    assert desk.send(page, start, letters="6").status_code == 422
    assert desk.amqp.depth("flow.orders") == 0
    begun = desk.send(page, start, letters="3", rate="0")
    assert begun.status_code == 303, begun.text
    eventually(lambda: desk.amqp.depth("flow.orders") == 3 or None, 20)
    eventually(lambda: 'good">done<' in desk.web.get(begun.headers["location"]).text or None, 20)
    assert desk.amqp.depth("DLQ.flow.orders") == 3


def test_one_letter_goes_back_by_one_button_and_another_one_changed(desk: Desk) -> None:
    desk.kill("one.orders", 2)
    first, second = (str(letter["id"]) for letter in desk.rows("/letters", queue="one.orders"))
    lies = {"vhost": desk.vhost.name, "queue": "DLQ.one.orders"}
    assert desk.send(f"/letters/{first}", f"/letters/{first}/send-back", **lies).status_code == 303
    desk.amqp.take("one.orders", 20)
    changed = {**lies, "text": '{"order": 4711}', "headers": "mended-by=me"}

    def sent() -> bool:
        answer = desk.send(f"/letters/{second}/edit", f"/letters/{second}/edit", **changed)
        assert answer.status_code in {303, 409}, answer.text  # the task before may still be at work
        return answer.status_code == 303

    eventually(lambda: sent() or None, 20, every=0.5)
    mended = desk.amqp.take("one.orders", 20)
    assert mended.body == b'{"order": 4711}'
    assert mended.headers["mended-by"] == "me"


@pytest.mark.usefixtures("newest")
def test_a_task_is_paused_resumed_and_cancelled(desk: Desk) -> None:
    desk.kill("slow.orders", 4)
    form = {"queue": "DLQ.slow.orders", "vhost": desk.vhost.name, "kind": "redrive"}
    page = desk.send("/redrive", "/redrive", **form).headers["location"]
    eventually(lambda: "Type <strong>4</strong>" in desk.web.get(page).text or None, 20, every=0.2)
    begun = desk.send(page, page.replace("?", "/start?"), letters="4", rate="0.2").headers["location"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert desk.send(begun, begun.replace("?", f"/{verb}?")).status_code == 303
        assert f">{state}</span>" in desk.web.get(begun).text
    assert desk.send(begun, begun.replace("?", "/resume?")).status_code == 409


@pytest.mark.usefixtures("newest")
def test_a_group_is_decided_about_and_the_audit_says_who_did_it(desk: Desk) -> None:
    desk.kill("group.orders", 1, error="<b>no</b> stock")
    group = next(row for row in desk.rows("/groups") if row["failed_queue"] == "group.orders")
    path = f"/groups/{group['id']}"
    assert desk.send(path, path, state="resolved", note="=fixed <i>in</i> 1.4").status_code == 303
    page = desk.web.get(path).text
    assert ">resolved</span>" in page
    assert "=fixed &lt;i&gt;in&lt;/i&gt; 1.4" in page
    assert "'=fixed" in desk.web.get("/groups?format=csv").text
    audit = eventually(lambda: page_with(desk, "/audit", "group.set"), 20)
    assert "olga" in audit


def counted(desk: Desk, queue: str, letters: int) -> str:
    """The page of a dry run that is done."""
    form = {"queue": f"DLQ.{queue}", "vhost": desk.vhost.name, "kind": "redrive"}
    page = desk.send("/redrive", "/redrive", **form).headers["location"]
    eventually(lambda: f"Type <strong>{letters}</strong>" in desk.web.get(page).text or None, 20, every=0.2)
    return page


@pytest.mark.usefixtures("newest")
def test_of_two_people_who_send_back_the_same_letters_one_does_and_the_other_is_told(desk: Desk) -> None:
    desk.kill("two.orders", 3)
    with httpx.Client(base_url=desk.url, timeout=60, trust_env=False, verify=NO_TLS) as web:
        assert web.post("/login", data={"token": TOKEN}).status_code == 303
        people = desk, replace(desk, web=web)
        pages = [counted(person, "two.orders", 3) for person in people]
        first, second = (
            person.send(page, page.replace("?", "/start?"), letters="3", rate="0.2")
            for person, page in zip(people, pages, strict=True)
        )
        assert (first.status_code, second.status_code) == (303, 409)
        task = first.headers["location"]
        assert "Something is in the way" in second.text
        assert task.split("/")[2].partition("?")[0] in second.text, "which task that is"
        assert people[1].send(task, task.replace("?", "/cancel?")).status_code == 303, "the other may end it"
        assert ">cancelled</span>" in desk.web.get(task).text
        gone = desk.send(task, task.replace("?", "/pause?"))
        assert (gone.status_code, "cancelled" in gone.text) == (409, True)
    assert desk.amqp.depth("two.orders") + desk.amqp.depth("DLQ.two.orders") == 3


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_page_of_a_task_outlives_a_restart_of_the_router(desk: Desk) -> None:
    desk.kill("restart.orders", 4)
    page = counted(desk, "restart.orders", 4)
    task = desk.send(page, page.replace("?", "/start?"), letters="4", rate="1").headers["location"]
    desk.router.stop()
    away = desk.web.get(task)
    assert (away.status_code, "does not answer" in away.text) == (502, True)
    assert "Log out" in away.text, "nobody is logged out by it"
    live = desk.web.get(task, headers={"hx-request": "true"})
    assert live.status_code == 502, "htmx keeps what it shows, and asks again"
    form = {"csrf": "guessed"}
    assert desk.web.post(task.replace("?", "/cancel?"), data=form).status_code == 403
    desk.router.start(within=40)
    eventually(lambda: 'good">done<' in desk.web.get(task).text or None, 30, every=0.2)
    assert desk.amqp.depth("restart.orders") == 4


@pytest.mark.usefixtures("newest")
def test_a_letter_of_16_mib_has_a_page_like_any_other(desk: Desk) -> None:
    queue = "<b>large</b>.orders"
    desk.amqp.queue(queue, dead_letter_exchange=INBOX)
    desk.amqp.publish("<x>" + "=" * ((16 << 20) - 3), key=queue, headers={"x-error-message": "\u202egnp.exe"})
    desk.amqp.fail(queue)
    (letter,) = eventually(lambda: desk.rows("/letters", queue=queue), 30, every=0.2)
    began = time.perf_counter()
    page = desk.web.get(f"/letters/{letter['id']}")
    assert time.perf_counter() - began < 50
    assert page.status_code == 200
    assert len(page.content) < 400_000
    assert "16,777,216 bytes" in page.text
    assert "&lt;b&gt;large&lt;/b&gt;.orders" in page.text
    assert "\u202e" not in page.text
    assert desk.web.get(f"/letters/{letter['id']}?form=hex").status_code == 200
    assert desk.web.get(f"/letters/{letter['id']}/edit").status_code == 200
