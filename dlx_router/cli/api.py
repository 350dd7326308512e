"""The commands' client of /api/v1: waits where it is told to, and says clearly why there is no answer."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import quote

import httpx
import typer

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


class Api:
    """Of one router. Every method ends the command with exit code 2 where there is no answer."""

    def __init__(self, url: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """`url` None: setting API_URL."""
        try:
            settings = Settings.load({} if url is None else {"api_url": url})
            token = settings.api_credentials()
        except SettingsError as error:
            _end(str(error))
        self.settings = settings
        url = settings.api_url.rstrip("/").removesuffix("/api/v1")
        self.address = redacted(url)  # the only form that is printed: the URL may hold a password
        if not url.startswith(("http://", "https://")):
            shown = url.rpartition("@")[2]
            _end(f"DLX_ROUTER_API_URL {shown!r}: not the address of a router; write http://HOST:9719")
        headers = _authorization(token)
        self._missing: set[str] = set()
        try:
            self._http = httpx.Client(
                base_url=f"{url}/api/v1",
                headers=headers,
                timeout=timeout_s,
                trust_env=False,
                follow_redirects=True,  # to the leader; to another host the token does not go along
            )
        except (httpx.InvalidURL, ValueError):  # its text may repeat a part of the password
            _end(f"DLX_ROUTER_API_URL {self.address!r}: not a URL; write http://HOST:9719")
        self._url = url

    def get(self, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - parameters of the API, each of its own type
        """The answer to a GET; None and empty queries are left out."""
        return self.ask("GET", path, query={key: value for key, value in query.items() if value not in (None, [], ())})

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        """The answer; what is busy is asked again for some seconds. Only a GET is repeated after it was sent."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._once(method, path, query, body)
            waits = answer.headers.get("retry-after", "")
            may_wait = method == "GET" or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if answer.status_code not in BUSY or not waits or not may_wait or time.monotonic() > deadline:
                break
            time.sleep(min(float(waits) if waits.isascii() and waits.isdigit() else 1.0, 5.0))
        if not answer.is_success:
            _end(self._refusal(answer))
        try:
            return self._whole(_document(answer))
        except ValueError:
            _end(f"{self.address}: what answers there is no router's API; look at DLX_ROUTER_API_URL")

    def _whole(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document; warn once of each vhost whose journal the index does not read now."""
        known = document.get("as_of")
        for vhost in [vhost for vhost, ms in known.items() if ms is None] if isinstance(known, dict) else ():
            if vhost not in self._missing:
                output.warn(f"vhost {vhost}: the router's index does not read its journal now; see dlx-router status")
            self._missing.add(vhost)
        return document

    def nothing(self, text: str) -> str:
        """Return `text` for an empty list, or that the answer is unknown where the index does not read a vhost."""
        return f"Unknown: the index does not read {len(self._missing)} vhosts now." if self._missing else text

    def look(self, path: str, **query: Any) -> tuple[dict[str, Any] | None, str]:  # noqa: ANN401 - as for get
        """The answer to one GET; None, and why, where the router gives none. Waits for nobody."""
        answer = self._once("GET", path, query, None)
        try:
            return (_document(answer), "") if answer.is_success else (None, self._refusal(answer))
        except ValueError:
            return None, f"{self.address}: what answers there is no router's API"

    def readiness(self) -> dict[str, Any]:
        """What /readyz says, whether or not the router is ready; it asks for no token."""
        answer = self._once("GET", f"{self._url}/readyz", None, None)
        try:
            document = _document(answer)
        except ValueError:
            document = {}
        if not isinstance(document.get("ready"), bool):
            _end(self._refusal(answer))
        return {"reasons": [], "notes": [], **document}

    def pages(self, path: str, key: str, cursor: str, limit: int, **query: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - parameters of the API, each of its own type
        """Up to `limit` items of a list, page by page; 0: all."""
        left, at = limit, None
        while True:
            size = min(PAGE, left) if limit else PAGE
            page = self.get(path, **query, **{"limit": size, cursor: at})
            yield from page[key]
            left, at = left - len(page[key]), page["next"]
            if at is None or (limit and left <= 0):
                return

    def _once(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        try:
            return self._request(method, path, query, body)
        except httpx.TransportError as error:
            reason = redacted(str(error)) or type(error).__name__
            _end(f"{self.address}: {reason}; is the router running, and DLX_ROUTER_API_URL its address?")

    def _request(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> httpx.Response:  # noqa: ANN401 - JSON
        """In ASCII, whatever bytes a shell gave for a name: what the router cannot take it refuses in its own words."""
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        fields = None if query is None else {name: _spelt(value) for name, value in query.items()}
        address = quote(path, safe="/:%[]@", errors="surrogateescape")
        return self._http.request(method, address, params=fields, content=content, headers=kind)

    def _refusal(self, answer: httpx.Response) -> str:
        try:
            document = _document(answer)
        except (ValueError, KeyError):
            document = {}
        if "error" not in document or "reason" in document:  # the latter is how RabbitMQ answers
            return f"{self.address}: {answer.status_code}; no router answers there; is DLX_ROUTER_API_URL its address?"
        problems = "".join(f"\n  {problem}" for problem in document.get("problems") or ())
        hint = _HINTS.get(answer.status_code)
        return f"{document.get('error', answer.status_code)}{f'; {hint}' if hint else ''}{problems}"


def _authorization(token: str) -> dict[str, str]:
    """The header that shows the token. What cannot be one is said here: the HTTP client would repeat it."""
    if token and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", token):
        _end(
            "DLX_ROUTER_API_TOKEN: holds a line break, or what is not ASCII; write the token as API_TOKENS_FILE has it"
        )
    return {"authorization": f"Bearer {token}"} if token else {}


def _spelt(value: Any) -> Any:  # noqa: ANN401 - parameters of the API, each of its own type
    r"""A name as the index spells it: with `\udc80` for a byte that is no text."""
    if isinstance(value, list | tuple):
        return [*map(_spelt, value)]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004 - its text is wrong, no type of ours
    return document


def _end(why: str) -> NoReturn:
    raise typer.Exit(output.wrong_use(why))
