"""A router as the console sees it: its API and probes, over HTTP. Answers are bounded, errors are in its own words."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import httpx
from starlette.types import ASGIApp

from dlx_router.console.rendering import query as at
from dlx_router.core.printable import redacted

TIMEOUT_S: Final = 15.0  # for the whole answer
CONNECT_S: Final = 5.0
PAUSE_S: Final = 1.0
MAX_ANSWER_BYTES: Final = 8 << 20  # 1,000 letters of a page are some 600 KB; a body in the journal has 64 KiB at most
MAX_CONNECTIONS: Final = 32
UNREACHABLE: Final = 0
_AGAIN: Final = frozenset({429, 503})
_DOUBTFUL: Final = "it may have been done, so look before you do it again"


class ApiError(Exception):
    """The router did not do it; says why in its words. `status` 0: nothing came that could be understood."""

    def __init__(
        self, status: int, error: str, problems: tuple[str, ...] = (), retry_after_s: int | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.problems, self.retry_after_s = status, error, problems, retry_after_s


class InProcess(httpx.ASGITransport):
    """The way to an app in this process, which finishes a request that nobody waits for any more, as over a socket."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.shield(super().handle_async_request(request))


class RouterApi:
    """One router. `name` is what pages call it; `transport`: how it is reached, if not by its address."""

    def __init__(self, name: str, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.name, self.url = name, url.rstrip("/").removesuffix("/api/v1")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            transport=transport,
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S),
            trust_env=False,
            follow_redirects=False,  # a token goes to no other address than the one that was given
            headers={"accept-encoding": "identity"},  # what is bounded is what is held
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )

    async def get(self, path: str, token: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - values of a query
        """The answer to a GET of /api/v1; what is None or empty is left out. Raises ApiError."""
        fields = {key: value for key, value in query.items() if value not in (None, "", [], ())}
        try:
            return await self.ask("GET", path, token, query=fields)
        except ApiError as error:
            if error.status != httpx.codes.TOO_MANY_REQUESTS:
                raise
        await asyncio.sleep(PAUSE_S)  # several tabs of one person; the second refusal is theirs to read
        return await self.ask("GET", path, token, query=fields)

    async def ask(
        self,
        method: str,
        path: str,
        token: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The answer of /api/v1. Raises ApiError."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        status, text, waits = await self._exchange(method, f"/api/v1{path}", headers, query, body)
        document = self._document(status, text)
        if status >= httpx.codes.BAD_REQUEST or status < httpx.codes.OK:
            problems = tuple(map(str, document.get("problems") or ()))
            is_number = waits.isascii() and waits.isdigit()
            after = int(waits) if is_number and status in _AGAIN else None
            raise ApiError(status, str(document.get("error", status)), problems, after)
        return document

    async def readiness(self) -> dict[str, Any]:
        """What /readyz says: `ready`, `reasons`, `notes`. Raises ApiError."""
        status, text, _ = await self._exchange("GET", "/readyz", {}, None, None)
        return self._document(status, text)

    async def close(self) -> None:
        """Ends its connections."""
        await self._http.aclose()

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
    ) -> tuple[int, bytes, str]:
        content = None if body is None else json.dumps(body).encode()  # ASCII, whatever a name holds
        kind = {} if body is None else {"content-type": "application/json"}
        address = at(path, query)
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._http.stream(method, address, headers={**headers, **kind}, content=content) as answer,
            ):
                read = bytearray()
                async for piece in answer.aiter_bytes():
                    read += piece
                    if len(read) > MAX_ANSWER_BYTES:
                        raise ApiError(UNREACHABLE, f"its answer is over {MAX_ANSWER_BYTES} bytes; ask for fewer")
                return answer.status_code, bytes(read), answer.headers.get("retry-after", "")
        except (httpx.TransportError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            is_unsent = method == "GET" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            what_now = "is the router running?" if is_unsent else _DOUBTFUL
            raise ApiError(UNREACHABLE, f"{self.url} does not answer: {reason}; {what_now}") from None
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ApiError(UNREACHABLE, f"that cannot be asked: {error}") from None

    def _document(self, status: int, text: bytes) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ApiError(UNREACHABLE, f"{self.url} answered {status}, and not as a router does; is that its address?")
        return document


def named(given: str) -> tuple[str, str]:
    """Name and URL of `[NAME=]URL`; without a name the host and port. ValueError says what is wrong."""
    name, separator, url = given.partition("=")
    if not separator or "/" in name or ":" in name:
        name, url = "", given
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:  # its text may repeat a part of a password
        raise ValueError(f"{_shown(given)!r} is not a URL; write http://HOST:9719") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(
            f"{_shown(given)!r} is not the address of a router; write http://HOST:9719 or NAME=http://HOST:9719"
        )
    if parsed.userinfo:
        raise ValueError("a router's address holds no user and password; people log in with tokens of its API")
    return name or parsed.netloc.decode(), url


def _shown(given: str) -> str:
    """The address without what may be a password."""
    return redacted(given) if "://" in given else given.rpartition("@")[2]
