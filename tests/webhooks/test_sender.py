"""One request, to a real server: what it gets, what is made of its answer, and where nothing is sent."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from dlx_router.config.webhooks.endpoint import ALL_EVENTS, Endpoint, secret_bytes, url_fault
from dlx_router.webhooks import sender as sending
from dlx_router.webhooks.sender import Answer, Sender
from tests.core.test_notices import message
from tests.support.certificates import Authority
from tests.support.receiver import Receiver
from tests.webhooks.test_signature import OTHER, SECRET

HIDDEN: Final = "T0PSECRET"
"""Part of each URL here: it may stand in no answer."""


class Names:
    """A resolver whose answers are given, one after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = [*answers], 0

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def endpoint(url: str, *allowed: str, form: str = "cloudevents", **more: Any) -> Endpoint:
    networks = tuple(ip_network(network) for network in allowed or ("127.0.0.0/8",))
    return Endpoint("e", "host", url, form, ALL_EVENTS, allowed=networks, secrets=(secret_bytes(SECRET),), **more)


def send(to: Endpoint, own_port: int = 9719, **given: Any) -> Answer:
    return asyncio.run(
        Sender("dlx-router", "https://console.example", own_port, **given).send(to, message("group.opened"))
    )


def test_it_gets_there_signed_and_whole() -> None:
    with Receiver(status=202, text=b"thanks \x1b[31m") as receiver:
        answer = send(endpoint(receiver.url(f"/hook/{HIDDEN}?a=b")))
        (post,) = receiver.posts
    assert (answer.taken, answer.status, answer.text) == (True, 202, "thanks \\x1b[31m")
    assert post.path == f"/hook/{HIDDEN}?a=b"
    assert post.headers["content-type"].startswith("application/cloudevents+json")
    assert post.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert Webhook(SECRET).verify(post.body, dict(post.headers)) == json.loads(post.body)
    assert post.headers["webhook-id"] == json.loads(post.body)["id"]


@pytest.mark.parametrize(
    ("status", "headers", "why", "asked_ms"),
    [
        (500, {}, "HTTP 500", 0),
        (429, {"retry-after": "7"}, "HTTP 429", 7000),
        (503, {"retry-after": "nonsense"}, "HTTP 503", 0),
        (503, {"retry-after": "9" * 400}, "HTTP 503", 86_400_000),
    ],
)
def test_what_is_no_2xx_was_not_taken(status: int, headers: dict[str, str], why: str, asked_ms: int) -> None:
    with Receiver(status=status, headers=headers) as receiver:
        answer = send(endpoint(receiver.url(f"/{HIDDEN}")))
    assert (answer.taken, answer.why, answer.asked_ms) == (False, why, asked_ms)


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as other, Receiver(status=307, headers={"location": other.url("/there")}) as receiver:
        answer = send(endpoint(receiver.url(f"/{HIDDEN}")))
        assert not answer.taken
        assert "redirect" in answer.why
        assert (len(receiver.posts), other.posts) == (1, [])


def test_a_receiver_that_hangs_costs_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WITHIN_S", 0.3)
    with Receiver(hangs=True) as receiver:
        began = time.monotonic()
        answer = send(endpoint(receiver.url(f"/{HIDDEN}")))
        assert (answer.taken, answer.why) == (False, "no answer within 0.3 s")
        assert time.monotonic() - began < 50


@pytest.mark.parametrize(("status", "taken"), [(200, True), (503, False)])
def test_an_answer_without_its_end_is_what_its_head_says(
    monkeypatch: pytest.MonkeyPatch, status: int, taken: bool  # noqa: FBT001 - a parameter of the test
) -> None:  # fmt: skip
    """Else a receiver that took the message and then stalls would get it again for a day."""
    monkeypatch.setattr(sending, "WITHIN_S", 4)
    with Receiver(status=status, text=b"I see", stalls=True) as receiver:
        answer = send(endpoint(receiver.url(f"/{HIDDEN}")))
    assert (answer.taken, answer.status, answer.text) == (taken, status, "I see")
    assert answer.took_ms < 3_000


async def test_names_that_nobody_answers_for_keep_no_other_waiting() -> None:
    """As many as a pool of threads would have, and more, ask for half a minute; nothing can end that."""
    silent = threading.Event()
    hanging = [asyncio.create_task(sending.aside(silent.wait)) for _ in range(100)]
    try:
        assert await asyncio.wait_for(sending.aside(lambda: "here"), 60) == "here"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(hanging[0]), 0.05)
    finally:
        silent.set()
    assert await asyncio.gather(*hanging) == [True] * 100


def test_a_name_that_nobody_answers_for_does_not_keep_the_process() -> None:
    program = (
        "import asyncio, time\nfrom dlx_router.webhooks.sender import aside\n"
        "asyncio.run(asyncio.wait_for(aside(lambda: time.sleep(60)), 0.1))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "TimeoutError" in done.stderr, done.stderr


@given(st.text("abx019.-_") | st.text("ab.-_~:/?[]@!$&'()*+,;=%019x^`{|}", max_size=12), st.booleans())
@example("xn--a", True)  # noqa: FBT003 - drawn
@example("a..b", False)  # noqa: FBT003 - drawn
@settings(deadline=None, max_examples=200)
def test_whatever_url_a_file_may_have_nothing_is_raised_and_nothing_of_it_told(rest: str, is_somewhere: bool) -> None:  # noqa: FBT001 - drawn
    url = f"https://{rest}/{HIDDEN}"
    if url_fault(url):
        return  # no file may have it
    answer = send(endpoint(url, "192.0.2.0/24"), resolve=Names(["169.254.169.254"] if is_somewhere else []))
    assert (answer.taken, answer.status) == (False, None)
    assert HIDDEN not in str(answer)


def test_nobody_there_is_said_without_the_url() -> None:
    with Receiver() as receiver:
        url = receiver.url(f"/{HIDDEN}")
    answer = send(endpoint(url))
    assert not answer.taken
    assert answer.why.startswith("cannot be reached")
    assert HIDDEN not in str(answer)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_name_that_leads_inside_is_refused_unless_it_is_allowed(address: str) -> None:
    answer = send(endpoint(f"https://hooks.example/{HIDDEN}", "192.0.2.0/24"), resolve=Names([address]))
    assert (answer.taken, answer.refused) == (False, True)
    assert "nothing was sent" in answer.why
    assert "allow-addresses" in answer.why
    assert HIDDEN not in str(answer)


def test_one_address_that_is_not_allowed_refuses_them_all() -> None:
    with Receiver() as receiver:
        to = endpoint(receiver.url(host="hooks.example"), "127.0.0.1/32")
        answer = send(to, resolve=Names(["127.0.0.1", "127.0.0.2"]))
        assert answer.refused
        assert receiver.posts == []


def test_a_name_that_leads_elsewhere_a_moment_later_changes_nothing() -> None:
    """DNS rebinding: it is resolved once for a request, and the connection goes where that answer led."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    with Receiver() as receiver:
        to = endpoint(receiver.url(host="hooks.example"), "127.0.0.1/32")
        answer = send(to, resolve=names)
        assert answer.taken, answer
        assert names.asked == 1
        assert receiver.posts[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert send(to, resolve=names).refused
        assert len(receiver.posts) == 1


def test_the_router_itself_is_refused_even_where_its_address_is_allowed() -> None:
    with Receiver() as receiver:
        answer = send(endpoint(receiver.url("/api/v1/redrive")), own_port=receiver.port)
        assert answer.refused
        assert "this router" in answer.why
        assert receiver.posts == []


def test_the_second_address_is_tried_where_the_first_is_dead() -> None:
    with Receiver() as receiver:
        answer = send(endpoint(receiver.url(host="hooks.example")), resolve=Names(["127.0.0.9", "127.0.0.1"]))
        assert answer.taken, answer


def test_by_tls_the_name_is_checked_and_not_the_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ours")
    with Receiver(pair=authority.issue("hooks.example")) as receiver:
        ours = {"ca_file": str(authority.certificate)}
        right = send(endpoint(receiver.url(host="hooks.example"), **ours), resolve=Names(["127.0.0.1"]))
        wrong = send(endpoint(receiver.url(f"/{HIDDEN}", host="other.example"), **ours), resolve=Names(["127.0.0.1"]))
        stranger = send(endpoint(receiver.url(f"/{HIDDEN}", host="hooks.example")), resolve=Names(["127.0.0.1"]))
        assert right.taken, right
        assert len(receiver.posts) == 1
    for answer in (wrong, stranger):
        assert answer.why.startswith("its certificate is not valid")
        assert HIDDEN not in str(answer)


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(""))
        monkeypatch.setenv("ALL_PROXY", proxy.url(""))
        assert send(endpoint(receiver.url())).taken
        assert proxy.posts == []


def test_an_endpoint_tells_neither_its_url_nor_its_secrets() -> None:
    target = endpoint(f"https://hooks.example/{HIDDEN}")
    assert HIDDEN not in f"{target} {target!r}"
    assert str(secret_bytes(SECRET)) not in repr(target)
    assert OTHER not in repr(target)
