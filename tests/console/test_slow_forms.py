"""Forms that are sent slowly, in part or by many: what anybody may send keeps nobody out, and half of it is nothing."""

import asyncio
from typing import Any

import pytest

from dlx_router.admin.held_bodies import FREE_BYTES, BodyRefused, HeldBodies
from dlx_router.console import guard
from dlx_router.console.guard import AT_ONCE
from tests.console.liar import TOKEN, Liar, browser, console, csrf, logged_in
from tests.journal.conftest import soon


class Slow:
    """A request whose body is sent in pieces that a test lets go; `status` of its answer, 0 while there is none."""

    def __init__(self, *, path: str = "/login") -> None:
        headers = [(b"host", b"127.0.0.1:9718"), (b"content-type", b"application/x-www-form-urlencoded")]
        self.scope: Any = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        self.scope |= {
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "http_version": "1.1",
            "scheme": "http",
        }
        self.pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status = 0

    def give(self, body: bytes, *, more: bool = True) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)


async def test_who_sends_slowly_keeps_nobody_out() -> None:
    """A login is asked for by anybody: sixteen that were never whole were all that the console answered."""
    app = console(Liar())
    slow = [Slow() for _ in range(3 * AT_ONCE)]
    sending = [asyncio.ensure_future(app(sender.scope, sender.pieces.get, sender.send)) for sender in slow]
    for sender in slow:
        sender.give(b"token=")
    try:
        async with logged_in(app) as client:
            assert (await client.get("/groups")).status_code == 200
        slow[0].give(TOKEN.encode(), more=False)
        await sending[0]
        assert slow[0].status == 303
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def test_who_sends_much_and_slowly_keeps_no_login_out() -> None:
    """Sixteen bodies that were never whole held all that there was to hold: each other form was refused, not they."""
    app = console(Liar())
    slow = [Slow() for _ in range(guard.MAX_BODIES_BYTES // guard.MAX_BODY_BYTES + 1)]
    sending = [asyncio.ensure_future(app(sender.scope, sender.pieces.get, sender.send)) for sender in slow]
    for sender in slow:
        sender.give(b"x" * guard.MAX_BODY_BYTES)
    try:
        await soon(lambda: not any(sender.pieces.qsize() for sender in slow))
        login = Slow()
        login.give(f"token={TOKEN}".encode(), more=False)
        await app(login.scope, login.pieces.get, login.send)
        assert login.status == 303
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


@pytest.mark.parametrize("limits", [(guard.MAX_BODY_BYTES, guard.MAX_BODIES_BYTES), (100_000, 100_000)])
async def test_small_bodies_are_taken_whatever_large_ones_hold(limits: tuple[int, int]) -> None:
    bodies, (most, together) = HeldBodies(*limits), limits
    large = [Slow() for _ in range(together // most)]

    async def hold(sender: Slow) -> None:
        async with bodies.whole(sender.pieces.get):
            raise AssertionError("it is never whole")

    holding = [asyncio.ensure_future(hold(sender)) for sender in large]
    for sender in large:
        sender.give(b"x" * most)
    await soon(lambda: all(sender.pieces.empty() for sender in large))
    small, middling = Slow(), Slow()
    for _ in range(3):
        small.give(b"x" * FREE_BYTES, more=False)
        async with bodies.whole(small.pieces.get) as body:
            assert len(body) == FREE_BYTES
    for sender in (middling, middling):
        sender.give(b"x" * most)
    with pytest.raises(BodyRefused) as refused:
        async with bodies.whole(middling.pieces.get):
            pass
    assert refused.value.status in {413, 503}
    for task in holding:
        task.cancel()
    await asyncio.gather(*holding, return_exceptions=True)
    assert bodies._held == 0


async def test_half_a_form_is_none() -> None:
    """Of one that is cut off behind its queue the filter would be missing."""
    liar = Liar("q")
    app = console(liar)
    async with logged_in(app) as client:
        word, cookie = csrf((await client.get("/redrive")).text), client.cookies["dlx_console"]
    cut = Slow(path="/redrive")
    cut.scope["headers"].append((b"cookie", f"dlx_console={cookie}".encode()))
    cut.give(f"csrf={word}&vhost=q&queue=q&".encode())
    cut.pieces.put_nowait({"type": "http.disconnect"})
    await app(cut.scope, cut.pieces.get, cut.send)
    assert (cut.status, liar.asked) == (0, [])


async def test_what_is_held_of_bodies_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_BODIES_BYTES", 3_000_000)
    app = console(Liar())
    slow = [Slow() for _ in range(4)]
    sending = [asyncio.ensure_future(app(sender.scope, sender.pieces.get, sender.send)) for sender in slow]
    for sender in slow:
        sender.give(b"x" * 1_000_000)
    try:
        await soon(lambda: [sender.status for sender in slow] == [0, 0, 0, 503])
        async with browser(app) as client:
            assert (await client.get("/login")).status_code == 200
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
