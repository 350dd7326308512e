"""The commands' client of /api/v1: repeats what is busy, and says clearly why there is no answer."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx

from dlx_router.cli import output
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.core.printable import redacted

TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 20.0  # for a rate limit, a takeover, an index that is being made
BUSY: Final = frozenset({429, 503})
PAGE: Final = 500
_HINTS: Final = {
    401: "set DLX_ROUTER_API_TOKEN or DLX_ROUTER_API_TOKEN_FILE",
    403: "the token's role or scope does not allow it",
}
_UNSENDABLE: Final = (
    "DLX_ROUTER_API_TOKEN: holds a line break, or what is not ASCII; write the token as API_TOKENS_FILE has it"
)


class ApiError(SettingsError):
    """The router refuses, or none answers."""


class Api:
    """Of one router. Every method raises ApiError, which ends a command with 2."""

    def __init__(self, url: str | None = None) -> None:
        """`url` None: setting API_URL."""
        self.settings = Settings.load({} if url is None else {"api_url": url})
        token = self.settings.api_credentials()
        url = self.settings.api_url.rstrip("/").removesuffix("/api/v1")
        self.address = redacted(url)  # the only form that is printed: the URL may hold a password
        if not url.startswith(("http://", "https://")):
            shown = url.rpartition("@")[2]
            raise ApiError(f"DLX_ROUTER_API_URL {shown!r}: not the address of a router; write http://HOST:9719")
        if token and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", token):
            raise ApiError(_UNSENDABLE)  # the HTTP client would repeat it
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._missing: set[str] = set()
        try:
            self._http = httpx.Client(
                base_url=f"{url}/api/v1",
                headers=headers,
                timeout=TIMEOUT_S,
                trust_env=False,
                follow_redirects=True,  # to the leader; to another host the token does not go along
            )
        except (httpx.InvalidURL, ValueError):  # its text may repeat a part of the password
            raise ApiError(f"DLX_ROUTER_API_URL {self.address!r}: not a URL; write http://HOST:9719") from None
        self._url = url

    def one_vhost(self, vhost: str | None) -> str:
        """Return the vhost, or the only one that the settings name."""
        named = self.settings.vhost_list() if vhost is None else [vhost]
        if len(named) > 1 or (vhost is None and named == ["*"]):
            raise ApiError(f"DLX_ROUTER_VHOSTS names {', '.join(named)}; say --vhost")
        return named[0]

    def get(self, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - parameters of the API, each of its own type
        """Return the answer to a GET; None and empty queries are left out."""
        return self.ask("GET", path, query={key: value for key, value in query.items() if value not in (None, [], ())})

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - JSON
        patience_s: float = PATIENCE_S,
    ) -> dict[str, Any]:
        """Return the answer; repeat what is busy for some seconds. Only a GET is repeated after it was sent."""
        deadline = time.monotonic() + patience_s
        while True:
            answer = self._request(method, path, query, body)
            waits = answer.headers.get("retry-after", "")
            may_wait = method == "GET" or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if answer.status_code not in BUSY or not waits or not may_wait or time.monotonic() > deadline:
                break
            time.sleep(min(float(waits) if waits.isascii() and waits.isdigit() else 1.0, 5.0))
        document = _document(answer)
        if not answer.is_success:
            raise ApiError(self._refusal(answer, document))
        if document is None:
            raise ApiError(f"{self.address}: what answers there is no router's API; look at DLX_ROUTER_API_URL")
        self._warn_of_missing(document)
        return document

    def _warn_of_missing(self, document: dict[str, Any]) -> None:
        """Warn once of each vhost whose journal the index does not read now."""
        known = document.get("as_of")
        for vhost in [vhost for vhost, ms in known.items() if ms is None] if isinstance(known, dict) else ():
            if vhost not in self._missing:
                output.warn(f"vhost {vhost}: the router's index does not read its journal now; see dlx-router status")
            self._missing.add(vhost)

    def nothing(self, text: str) -> str:
        """Return `text` for an empty list, or that the answer is unknown where the index does not read a vhost."""
        return f"Unknown: the index does not read {len(self._missing)} vhosts now." if self._missing else text

    def readiness(self) -> dict[str, Any]:
        """Return what /readyz says, whether or not the router is ready; it asks for no token."""
        answer = self._request("GET", f"{self._url}/readyz", None, None)
        document = _document(answer) or {}
        if not isinstance(document.get("ready"), bool):
            raise ApiError(self._refusal(answer, document))
        return {"reasons": [], "notes": [], **document}

    def pages(self, path: str, key: str, cursor: str, limit: int = 0, **query: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - parameters of the API, each of its own type
        """Yield up to `limit` items of a list, page by page; 0: all."""
        left, at = limit, None
        while True:
            page = self.get(path, **query, **{"limit": min(PAGE, left) if limit else PAGE, cursor: at})
            yield from page[key]
            left, at = left - len(page[key]), page.get("next")
            if at is None or (limit and left <= 0):
                return

    def _request(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        """Send ASCII only, whatever bytes a shell gave for a name: what the router cannot take it refuses itself."""
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        fields = None if query is None else {name: _spelt(value) for name, value in query.items()}
        address = quote(path, safe="/:%[]@", errors="surrogateescape")
        try:
            return self._http.request(method, address, params=fields, content=content, headers=kind)
        except httpx.TransportError as error:
            reason = redacted(str(error)) or type(error).__name__
            text = f"{self.address}: {reason}; is the router running, and DLX_ROUTER_API_URL its address?"
            raise ApiError(text) from None

    def _refusal(self, answer: httpx.Response, document: dict[str, Any] | None) -> str:
        if not document or "error" not in document or "reason" in document:  # the latter is how RabbitMQ answers
            return f"{self.address}: {answer.status_code}; no router answers there; is DLX_ROUTER_API_URL its address?"
        problems = "".join(f"\n  {problem}" for problem in document.get("problems") or ())
        hint = _HINTS.get(answer.status_code)
        return f"{document['error']}{f'; {hint}' if hint else ''}{problems}"


def segment(text: str) -> str:
    """Return a name as a part of an address."""
    return quote(text, safe="", errors="surrogateescape")


def _spelt(value: Any) -> Any:  # noqa: ANN401 - parameters of the API, each of its own type
    r"""Return a name as the index spells it: with `\udc80` for a byte that is no text."""
    if isinstance(value, list | tuple):
        return [*map(_spelt, value)]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _document(answer: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of an answer; None: it is none."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
