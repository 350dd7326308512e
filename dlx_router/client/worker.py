"""Letters of a dead-letter queue, received one by one from a router's API, and worked off.

```python
from dlx_router.client.worker import receive

async for letter in receive("DLQ.orders", url="http://127.0.0.1:9719", token=token):
    async with letter:                 # held for as long as this takes; an error in it gives the letter back
        await mend(letter.body)        # then it is done
```

Stands alone: nothing but the standard library, from Python 3.9 on. Each letter comes at least once. See docs/leases.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

URL: Final = "http://127.0.0.1:9719"
WITHIN_S: Final = 15.0  # for an answer, beyond what is waited for letters
PATIENCE_S: Final = 30.0  # for a takeover, a restart, a limit
AGAIN_S: Final = 0.5
BUSY: Final = frozenset({429, 503})
GONE: Final = 410


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
            raise ValueError(f"url {url!r}: not the address of a router; write http://HOST:9719")
        self._url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._patience = patience

    async def post(self, path: str, body: dict[str, Any], within: float = WITHIN_S) -> dict[str, Any]:
        """The answer. WorkerError, LeaseEnded."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return await asyncio.to_thread(self._post, path, json.dumps(body).encode(), within)
            except WorkerError as error:
                if error.status not in BUSY | {0} or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(AGAIN_S)

    def _post(self, path: str, body: bytes, within: float) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - its scheme was looked at
            f"{self._url}/api/v1{path}", body, self._headers, method="POST"
        )
        try:
            with _OPENER.open(request, timeout=within) as answer:
                document: dict[str, Any] = json.loads(answer.read())
                return document
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except (OSError, ValueError) as error:
            raise WorkerError(f"{self._url}: {error}; is the router running, and this its address?") from None


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
        headers: dict[str, Any] = self._document["headers"]
        return headers

    @property
    def properties(self) -> dict[str, Any]:
        """Those that are set."""
        properties: dict[str, Any] = self._document["properties"]
        return properties

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
        while True:
            await asyncio.sleep(max(self._since + self._visibility_s / 2 - time.monotonic(), AGAIN_S))
            with suppress(WorkerError):  # who ends it is told
                await self.extend(self._visibility_s)


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
        answer = await router.post(path, asked, wait + WITHIN_S)
        waiting = [Letter(router, document, visibility) for document in answer["letters"]]
        given: list[Letter] = []
        try:
            while waiting:
                given = [waiting.pop(0)]
                yield given[0]
                given = []  # the loop goes on: who has it may still be at work
        finally:
            for letter in [item for item in (*given, *waiting) if not item.is_over]:
                with suppress(WorkerError):
                    await letter.release()
        if until_empty and not answer["letters"]:
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return WorkerError(f"{error.code} {error.reason}; is this the address of a router?", error.code)
    if error.code == GONE:
        return LeaseEnded(text, error.code, ended)
    problems = "; ".join(map(str, document.get("problems") or ()))
    return WorkerError(f"{text}{f': {problems}' if problems else ''}", error.code)
