"""One request: resolved, judged, signed, sent to the address that was judged, and what came back.

Each name is resolved anew, every address that it has must be allowed, and the connection goes to one of these: a name
that leads elsewhere a moment later (DNS rebinding) changes nothing. No redirect is followed, no proxy of the
environment is used. All of it runs in a thread with a loop of its own: no letter waits for a name, a handshake or a
receiver.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from dlx_router import __version__
from dlx_router.config.webhooks.endpoint import Endpoint
from dlx_router.core.addresses import Address, refusal
from dlx_router.core.notices import Message
from dlx_router.core.printable import printable
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks import formats

WITHIN_S: Final = 15.0  # all of it: resolving, connecting, the answer
TEXT_S: Final = 1.0  # for what stands below the head of an answer
CLOSE_S: Final = 1.0
CONNECT_S: Final = 5.0  # to one address; another may be tried then
MAX_ANSWER_BYTES: Final = 2048
SHOWN_CHARS: Final = 200
_TAKEN: Final = range(200, 300)
_SECOND_MS: Final = 1000
_ODD: Final = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
T = TypeVar("T")
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Answer(NamedTuple):
    """What came back. `status` None: no answer. `refused`: nothing was sent, because of where it would have gone."""

    taken: bool
    why: str
    status: int | None = None
    refused: bool = False
    asked_ms: int | None = None
    took_ms: int = 0
    text: str = ""


class AddressRefused(Exception):
    """The name leads where nothing is sent to; says where it leads, and what to do."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """All addresses of a name, as the system knows them. Raises OSError."""
    try:
        entries = await aside(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError:
        raise OSError("the name of the host cannot be resolved") from None
    return [str(entry[4][0]).partition("%")[0] for entry in entries]


async def aside(call: Callable[[], T]) -> T:
    """What the call returns or raises, in a thread of its own that nobody waits for.

    A name whose servers are silent takes half a minute to fail, and nothing can end that. In a pool such calls would
    keep the names of other endpoints waiting, and the process at its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        if not future.done():  # whoever waited was cancelled
            how()

    def hand_over(how: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, how)

    def work() -> None:
        try:
            value = call()
        except (OSError, UnicodeError) as error:
            hand_over(partial(future.set_exception, error))
        else:
            hand_over(partial(future.set_result, value))

    threading.Thread(target=work, name="webhooks-name", daemon=True).start()
    return await future


@dataclass(frozen=True, slots=True)
class Sender:
    """`prefix` names the router in what it sends. `own_port`: where its own API listens, which no webhook may reach."""

    prefix: str
    console_url: str | None
    own_port: int
    resolve: Resolve = resolved

    async def send(self, endpoint: Endpoint, message: Message) -> Answer:
        """Never raises for what the world does; its words have neither the URL nor a secret in them."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(WITHIN_S):
                answer = await self._posted(endpoint, message)
        except AddressRefused as error:
            answer = Answer(taken=False, why=str(error), refused=True)
        except TimeoutError:
            answer = Answer(taken=False, why=f"no answer within {WITHIN_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            answer = Answer(taken=False, why=_words(error))
        return answer._replace(took_ms=round((time.monotonic() - began) * 1000))

    async def _posted(self, endpoint: Endpoint, message: Message) -> Answer:
        url = httpx.URL(endpoint.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._resolved(endpoint, url.host, port)
        try:
            kind, body = formats.rendered(message, endpoint.format, self.prefix, self.console_url)
        except _ODD:
            return Answer(taken=False, why="this version cannot write what another one told")
        headers = {"content-type": kind, "user-agent": f"dlx-router/{__version__}", "host": url.netloc.decode()}
        headers |= signed_headers(message.id, wall_ms() // _SECOND_MS, body, endpoint.secrets)
        verify = _context(endpoint.ca_file) if url.scheme == "https" else False
        async with httpx.AsyncClient(
            verify=verify, trust_env=False, follow_redirects=False, timeout=httpx.Timeout(WITHIN_S, connect=CONNECT_S)
        ) as client:
            for last, address in enumerate(addresses, 1 - len(addresses)):
                try:
                    async with client.stream(
                        "POST",
                        url.copy_with(host=str(address), port=port),
                        content=body,
                        headers=headers,
                        extensions={"sni_hostname": url.host},  # the name is what its certificate is checked by
                    ) as answer:
                        return await _answer_of(answer)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if not last:
                        raise
        raise AssertionError("a name without an address has failed before")

    async def _resolved(self, endpoint: Endpoint, host: str, port: int) -> Sequence[Address]:
        """Every address of the name, all of them allowed. Raises AddressRefused, OSError."""
        addresses = list(dict.fromkeys(map(ip_address, await self.resolve(host, port))))
        if not addresses:
            raise OSError("the name of the host has no address")
        for address in addresses:
            if port == self.own_port and _is_own(address):
                raise AddressRefused(f"{host} leads to {address}, port {port}: that is this router; nothing was sent")
            if why := refusal(address, endpoint.allowed):
                advice = "name its network in allow-addresses to permit it"
                raise AddressRefused(f"{host} leads to {address}, {why}; nothing was sent; {advice}")
        return addresses


def _is_own(address: Address) -> bool:
    """Whether it is one of this machine: nothing else lets itself be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    with socket.socket(family, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((str(address), 0))
        except OSError:
            return False
    return True


def _context(ca_file: str | None) -> ssl.SSLContext:
    """The authorities that httpx brings, those of the system, and the one that is named."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


async def _answer_of(answer: httpx.Response) -> Answer:
    """What the receiver says; no more of it is read than is shown, and nobody waits for long for it.

    The status is what counts: who said that it was taken gets no second one because the rest of its answer never ends.
    """
    text = b""
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(TEXT_S):
            async for piece in answer.aiter_raw():
                text += piece
                if len(text) >= MAX_ANSWER_BYTES:
                    break
    shown = printable(text[:MAX_ANSWER_BYTES].decode(errors="replace").strip())[:SHOWN_CHARS]
    if answer.status_code in _TAKEN:
        return Answer(taken=True, why="", status=answer.status_code, text=shown)
    why = f"HTTP {answer.status_code}"
    if answer.is_redirect:
        why += ", a redirect, which is not followed; write the URL that it leads to"
    return Answer(
        taken=False,
        why=why,
        status=answer.status_code,
        asked_ms=_asked_ms(answer.headers.get("retry-after")),
        text=shown,
    )


def _asked_ms(text: str | None) -> int | None:
    """Retry-After: seconds or a date."""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), 86_400) * 1000
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(int(parsedate_to_datetime(text).timestamp() * 1000) - wall_ms(), 0)
    return None


def _words(error: Exception) -> str:
    """Of an error of the network: never a URL, which may be a secret."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.strerror:
            return f"cannot be reached: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return f"cannot be reached: {type(error).__name__}"


class SenderThread:
    """A loop of its own in a thread, begun by the first that is sent; it ends with the process."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The work, there; who is cancelled here cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="webhooks", daemon=True)
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """Nothing more is sent; nobody waits for long for a thread that looks up a name."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
            self._loop = self._thread = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; then what is at work ends."""
    loop.run_forever()
    loop.run_until_complete(_ended(asyncio.all_tasks(loop)))
    loop.close()


async def _ended(working: Iterable[asyncio.Task[Any]]) -> None:
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)


def signed_headers(message_id: str, ts_s: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of Standard Webhooks (https://www.standardwebhooks.com); without a secret no signature.

    What is signed is `msg_id.timestamp.payload`, by HMAC-SHA256, once for each secret: a receiver may know only one.
    """
    signed = f"{message_id}.{ts_s}.".encode() + body
    plain = {"webhook-id": message_id, "webhook-timestamp": str(ts_s)}
    digests = [hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets]
    signature = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {**plain, "webhook-signature": signature} if secrets else plain
