"""One request: resolved, checked, signed, sent to the address that was checked, and what came back.

Each name is resolved for each request, every address that it has must be allowed, and the connection goes to one of
these: a name that leads elsewhere a moment later (DNS rebinding) changes nothing. No redirect is followed, no proxy of
the environment is used. All of it runs in a thread of its own: no letter waits for a name, a handshake or a receiver.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeVar

import httpx

from dlx_router import __version__
from dlx_router.config.webhooks.endpoint import Endpoint
from dlx_router.core.addresses import Address, refusal
from dlx_router.core.notices import Message
from dlx_router.core.printable import printable
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks import formats

WITHIN_S: Final = 15.0  # all of it: resolving, connecting, the head of the answer
TEXT_S: Final = 1.0  # for each piece of the text below the head
CONNECT_S: Final = 5.0  # to one address; another may be tried then
MAX_ANSWER_BYTES: Final = 2048
SHOWN_CHARS: Final = 200
T = TypeVar("T")
Resolve = Callable[[str, int], Sequence[str]]


class Answer(NamedTuple):
    """What came back. `status` None: no answer. `refused`: nothing was sent, because of where it would have gone."""

    taken: bool
    why: str
    status: int | None = None
    refused: bool = False
    asked_ms: int = 0
    took_ms: int = 0
    text: str = ""


class AddressRefused(Exception):
    """The name leads where nothing is sent to; says where it leads, and what to do."""


def resolved(host: str, port: int) -> Sequence[str]:
    """All addresses of a name, as the system knows them. Raises OSError."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("the name of the host cannot be resolved") from None
    return [str(entry[4][0]).partition("%")[0] for entry in entries]


async def aside(call: Callable[[], T]) -> T:
    """Return what the call returns, in a daemon thread of its own.

    A name whose servers are silent takes half a minute to fail, and nothing can end that. In a pool such calls would
    keep other endpoints waiting, and the process at its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if future.done():  # the caller was cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]  # there is one where there is no error

    def work() -> None:
        value, failure = None, None
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, name="webhooks", daemon=True).start()
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
                answer = await aside(lambda: self._post(endpoint, message))
        except AddressRefused as error:
            answer = Answer(taken=False, why=str(error), refused=True)
        except TimeoutError:
            answer = Answer(taken=False, why=f"no answer within {WITHIN_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            answer = Answer(taken=False, why=_words(error))
        return answer._replace(took_ms=round((time.monotonic() - began) * 1000))

    def _post(self, endpoint: Endpoint, message: Message) -> Answer:
        url = httpx.URL(endpoint.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = self._resolved(endpoint, url.host, port)
        kind, body = formats.rendered(message, endpoint.format, self.prefix, self.console_url)
        headers = {"content-type": kind, "user-agent": f"dlx-router/{__version__}", "host": url.netloc.decode()}
        headers |= signed_headers(message.id, wall_ms() // 1000, body, endpoint.secrets)
        verify = _context(endpoint.ca_file) if url.scheme == "https" else False
        limits = httpx.Timeout(WITHIN_S, connect=CONNECT_S)
        with httpx.Client(verify=verify, trust_env=False, follow_redirects=False, timeout=limits) as client:
            for last, address in enumerate(addresses, 1 - len(addresses)):
                request = client.build_request(
                    "POST",
                    url.copy_with(host=str(address), port=port),
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": url.host},  # the name is what its certificate is checked by
                )
                try:
                    return _answer_of(client.send(request, stream=True))
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if not last:
                        raise
        raise AssertionError("a name without an address has failed before")

    def _resolved(self, endpoint: Endpoint, host: str, port: int) -> Sequence[Address]:
        """Every address of the name, all of them allowed. Raises AddressRefused, OSError."""
        addresses = list(dict.fromkeys(map(ip_address, self.resolve(host, port))))
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


def _answer_of(answer: httpx.Response) -> Answer:
    """What the receiver says; no more of it is read than is shown, and not for long.

    The status is what counts: a receiver that took the message gets it once, even if the rest of its answer never ends.
    """
    answer.request.extensions["timeout"]["read"] = TEXT_S
    text, until_s = b"", time.monotonic() + TEXT_S
    with contextlib.suppress(httpx.HTTPError):
        for piece in answer.iter_raw():
            text += piece
            if len(text) >= MAX_ANSWER_BYTES or time.monotonic() > until_s:
                break
    answer.close()
    shown = printable(text[:MAX_ANSWER_BYTES].decode(errors="replace").strip())[:SHOWN_CHARS]
    if answer.is_success:
        return Answer(taken=True, why="", status=answer.status_code, text=shown)
    hint = ", a redirect, which is not followed; write the URL that it leads to" if answer.is_redirect else ""
    asked_ms = _asked_ms(answer.headers.get("retry-after", ""))
    return Answer(
        taken=False, why=f"HTTP {answer.status_code}{hint}", status=answer.status_code, asked_ms=asked_ms, text=shown
    )


def _asked_ms(text: str) -> int:
    """Retry-After: seconds or a date; 0 where it is neither."""
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), 86_400) * 1000
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(int(parsedate_to_datetime(text).timestamp() * 1000) - wall_ms(), 0)
    return 0


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


def signed_headers(message_id: str, ts_s: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of Standard Webhooks (https://www.standardwebhooks.com); without a secret no signature.

    What is signed is `msg_id.timestamp.payload`, by HMAC-SHA256, once for each secret: a receiver may know only one.
    """
    signed = f"{message_id}.{ts_s}.".encode() + body
    plain = {"webhook-id": message_id, "webhook-timestamp": str(ts_s)}
    digests = [hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets]
    signature = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {**plain, "webhook-signature": signature} if secrets else plain
