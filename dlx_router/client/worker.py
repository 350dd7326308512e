"""Letters of a dead-letter queue, received one by one from a router's API, and worked off.

```python
from dlx_router.client.worker import receive

async for letter in receive("DLQ.orders", url="http://127.0.0.1:9719", token=token):
    async with letter:                 # held for as long as this takes; an error in it gives the letter back
        await mend(letter.body)        # then it is done
```

Stands alone: nothing but the standard library, from Python 3.9 on. Each letter comes at least once. See docs/leases.md.

To be cancelled while letters are waited for leaves none behind: what the router answers late is given back. Letters on
their way to a process that ends come back when their lease ends, after `visibility` seconds at the latest.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType

URL: Final = "http://127.0.0.1:9719"
WITHIN_S: Final = 15.0  # for an answer, beyond what is waited for letters
PATIENCE_S: Final = 30.0  # for a takeover, a restart, a limit
AGAIN_S: Final = 0.5
LONGEST_AGAIN_S: Final = 5.0
BUSY: Final = frozenset({429, 503})
UNREACHED: Final = BUSY | {0}  # it may do it later
THREAD: Final = "dlx-router-worker"
GONE: Final = 410
FAULT: Final = 500  # from here on it is one of the router, and may pass
_UNANSWERED: Final = (OSError, ValueError, http.client.HTTPException)  # the last one: half an answer, or none of HTTP


class WorkerError(Exception):
    """The router did not do it. `status` 0: it did not answer. `ended`: how the lease had ended, where that is why."""

    def __init__(self, text: str, status: int = 0, ended: str | None = None) -> None:
        super().__init__(text)
        self.status, self.ended = status, ended


class LeaseEnded(WorkerError):
    """Too late: the lease had ended. The letter is somebody else's again, or gone, as `ended` says."""


class Router:
    """The API of one router, asked with one token. What was not answered is asked again, as long as that is safe."""

    def __init__(self, url: str = URL, token: str | None = None, *, patience: float = PATIENCE_S) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError(f"url {url.rpartition('@')[2]!r}: not the address of a router; write http://HOST:9719")
        self._url = url.rstrip("/")
        self._shown = self._url.rpartition("@")[2]  # without what may be a password
        self._headers = {"content-type": "application/json", **_authorization(token)}
        self._patience = patience

    async def post(
        self, path: str, body: dict[str, Any], within: float = WITHIN_S, late: Callable[[Any], None] | None = None
    ) -> dict[str, Any]:
        """The answer. WorkerError, LeaseEnded. `late` is given one that comes after the caller was cancelled."""
        deadline, pause = time.monotonic() + self._patience, AGAIN_S
        while True:
            try:
                return await _on_its_own_thread(lambda: self._post(path, body, within), late)
            except WorkerError as error:
                if error.status not in UNREACHED or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_AGAIN_S)

    async def receive(self, path: str, asked: dict[str, Any], within: float) -> list[dict[str, Any]]:
        """The letters, which are the caller's; where it is cancelled they are given back, however late they come."""
        answer = await self.post(path, asked, within, lambda late: self._give_back(late["letters"]))
        return list(answer["letters"])

    def _give_back(self, documents: Iterable[dict[str, Any]]) -> None:
        """On the thread that it is called on; what does not reach the router comes back when its lease ends."""
        for document in documents:
            try:
                self._post(f"/leases/{document['handle']}", {"action": "release"}, WITHIN_S)
            except WorkerError as error:
                if error.status in UNREACHED:
                    return

    def _post(self, path: str, body: dict[str, Any], within: float) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - its scheme was looked at
            f"{self._url}/api/v1{path}", json.dumps(body).encode(), self._headers, method="POST"
        )
        try:
            with _OPENER.open(request, timeout=within) as answer:
                document: dict[str, Any] = json.loads(answer.read())
                return document
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except _UNANSWERED as error:
            raise WorkerError(f"{self._shown}: {error}; is the router running, and this its address?") from None


def _authorization(token: str | None) -> dict[str, str]:
    """The header; a token from a file may end with a line break. ValueError does not show it: it is a secret."""
    stripped = (token or "").strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise ValueError("token: it has characters that no header can carry; give the token itself, in one line")
    return {"authorization": f"Bearer {stripped}"} if stripped else {}


async def _on_its_own_thread(
    call: Callable[[], dict[str, Any]], late: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """Return what the call returns, from a thread of its own: waiting for letters delays no other call.

    `late` is given, on a thread too, what the call returns after the caller was cancelled. Threads are daemons: a
    process that ends does not wait for a router.
    """
    outcome: Future[dict[str, Any]] = Future()
    outcome.set_running_or_notify_cancel()  # nothing can stop it

    def begin(run: Callable[[], object]) -> None:
        threading.Thread(target=contextvars.copy_context().run, args=(run,), name=THREAD, daemon=True).start()

    def fulfil() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            outcome.set_exception(error)

    def answer_late() -> None:
        if late is not None and outcome.exception() is None:
            late(outcome.result())

    begin(fulfil)
    try:
        return await asyncio.wrap_future(outcome)
    except (asyncio.CancelledError, GeneratorExit):  # though the answer may be there already
        if late is not None:
            outcome.add_done_callback(lambda _: begin(answer_late))
        raise


class Letter:
    """A letter that is yours until `until_ms`. As a context it is kept until the end of the block, and then done.

    The block is not entered where the lease ended before: LeaseEnded. Somebody else has the letter then.
    """

    def __init__(self, router: Router, document: dict[str, Any], visibility_s: float) -> None:
        self._router, self._document, self._visibility_s = router, document, visibility_s
        self._keeping: asyncio.Task[None] | None = None
        self._since = time.monotonic()
        self.is_over = False

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """What the API tells of it by that name: `id`, `failed_queue`, `reason`, `error`, `deaths`, `redacted`."""
        return self._document[name]

    @property
    def body(self) -> bytes:
        """As it lies in the queue, but for what its policy redacts; ValueError where all of it is."""
        body = self._document.get("body")
        if body is None:
            raise ValueError("the body is redacted, see `redacted`; redrive, park, edit and done need no look at it")
        return base64.b64decode(body)

    @property
    def headers(self) -> dict[str, Any]:
        """But for the router's own."""
        return dict(self._document["headers"])

    @property
    def properties(self) -> dict[str, Any]:
        """Those that are set."""
        return dict(self._document["properties"])

    @property
    def receives(self) -> int:
        """How often it was received, this time included, as far as is known."""
        return int(self._document["receives"])

    @property
    def until_ms(self) -> int:
        """Until when it is yours, ms since 1970."""
        return int(self._document["until_ms"])

    async def done(self) -> None:
        """It is deleted; when this returns it is gone for good. LeaseEnded."""
        await self._end("done", "done")

    async def release(self) -> None:
        """Back to its queue, now. LeaseEnded."""
        await self._end("release", "released")

    async def redrive(self, *, exchange: str = "", routing_key: str = "") -> None:
        """Back to where it failed, or there. LeaseEnded."""
        to = {"to": {"exchange": exchange, "routing_key": routing_key}} if exchange or routing_key else {}
        await self._end("redrive", "redriven", **to)

    async def park(self) -> None:
        """Into parking, for a person. LeaseEnded."""
        await self._end("park", "parked")

    async def edit(self, body: bytes | None = None, headers: dict[str, Any] | None = None) -> None:
        """Back to where it failed, with this body and these headers instead. LeaseEnded."""
        changes: dict[str, Any] = {"headers": headers or {}}
        if body is not None:
            changes["body"] = base64.b64encode(body).decode()
        await self._end("edit", "edited", **changes)

    async def extend(self, visibility: float) -> None:
        """Yours for so many seconds from now. LeaseEnded."""
        since = time.monotonic()
        answer = await self._ask("extend", visibility=visibility)
        self._since = since
        self._document["until_ms"] = answer["until_ms"]

    async def _end(self, action: str, ended: str, **more: Any) -> None:  # noqa: ANN401 - JSON
        self.is_over = True
        try:
            await self._ask(action, **more)
        except LeaseEnded as error:
            if error.ended != ended:  # else it was done the first time, and only the answer was lost
                raise

    async def _ask(self, action: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        return await self._router.post(f"/leases/{self._document['handle']}", {"action": action, **more})

    async def __aenter__(self) -> Letter:  # noqa: PYI034 - Self came with Python 3.11
        if time.monotonic() - self._since > self._visibility_s / 4:  # others of its batch came first
            await self.extend(self._visibility_s)
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self.is_over:
            return
        if error is None:
            await self.done()
            return
        with suppress(WorkerError):  # it comes back by itself, only later
            await self.release()

    async def _keep(self) -> None:
        """Until it is refused for good: who ends the letter is told."""
        while True:
            await asyncio.sleep(max(self._since + self._visibility_s / 2 - time.monotonic(), AGAIN_S))
            try:
                await self.extend(self._visibility_s)
            except WorkerError as error:
                if error.status not in UNREACHED and error.status < FAULT:
                    return


async def receive(  # noqa: PLR0913 - what there is to say
    queue: str,
    *,
    url: str = URL,
    token: str | None = None,
    vhost: str = "/",
    batch: int = 1,
    visibility: float = 60.0,
    condition: str | None = None,
    wait: float = 20.0,
    until_empty: bool = False,
    not_a_dead_letter_queue: bool = False,
) -> AsyncIterator[Letter]:
    """Letters of a dead-letter queue, for ever, or until there are none (`until_empty`).

    `batch` at once (1 to 100): they are yours for `visibility` seconds, those too that wait for their turn. Those that
    nobody ended when the loop is left go back. `condition`: only letters of which it holds (CEL). WorkerError.
    """
    router = Router(url, token)
    asked = {"vhost": vhost, "max": batch, "visibility": visibility, "wait": 0 if until_empty else wait}
    asked |= {} if condition is None else {"filter": condition}
    asked |= {"not_a_dead_letter_queue": True} if not_a_dead_letter_queue else {}
    path = f"/queues/{quote(queue, safe='')}/receive"
    while True:
        documents = await router.receive(path, asked, wait + WITHIN_S)
        waiting = [Letter(router, document, visibility) for document in documents]
        given: list[Letter] = []
        try:
            while waiting:
                given = [waiting.pop(0)]
                yield given[0]
                given = []  # the loop goes on: who has it may still be at work
        finally:
            await _release([*given, *waiting])
        if until_empty and not documents:
            return


async def _release(letters: list[Letter]) -> None:
    """Those that nobody ended, until the router is not reached: the rest come back by themselves, only later."""
    for letter in [item for item in letters if not item.is_over]:
        try:
            await letter.release()
        except WorkerError as error:
            if error.status in UNREACHED:
                return


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token goes to no other host."""

    def redirect_request(self, *_given: Any) -> None:  # noqa: ANN401 - as the library has it
        return None


_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


def _refused(error: urllib.error.HTTPError) -> WorkerError:
    try:
        document = json.loads(error.read())
        text, ended = str(document["error"]), document.get("ended")
    except (*_UNANSWERED, KeyError, TypeError, AttributeError):
        return WorkerError(f"{error.code} {error.reason}; is this the address of a router?", error.code)
    if error.code == GONE:
        return LeaseEnded(text, error.code, ended)
    problems = "; ".join(map(str, document.get("problems") or ()))
    return WorkerError(f"{text}{f': {problems}' if problems else ''}", error.code)
