"""Who leads which vhost, as the brokers' state queues say it, and asking them over HTTP.

An address comes from whoever has the key that replicas share, and what answers there is believed only where it has that
key too; it is sent no token and no header of a person. Whoever forges nothing learns and does nothing.
"""

import secrets
from collections.abc import Mapping
from typing import Final

import httpx

from dlx_router.admin.api import envelope
from dlx_router.admin.api.answers import PLAIN, Takes
from dlx_router.admin.api.envelope import Answered, Request, Unsealed
from dlx_router.config.api_access.allowed_hosts import is_loopback
from dlx_router.config.api_access.replica_address import checked
from dlx_router.core.statemessage import Claim
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.wall_clock import wall_ms

CONNECT_S: Final = 1.0
ANSWER_S: Final = 8.0  # a connection of the port ends after 10
AT_ONCE: Final = 16
WAITING: Final = 200  # at once: requests that may take long keep no others out


class Unsent(Exception):
    """Nobody has the request: it can be sent again. Says why."""


class Doubtful(Exception):
    """It was sent, and what became of it is not known. Says why."""


class Leaders:
    """Of the vhosts of one router. `transport`: how others are reached, if not by their address.

    With VHOSTS=* one may be left while a request is about it: nobody leads it then.
    """

    def __init__(
        self,
        router_id: str,
        attendants: Mapping[str, VhostRunner],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.router_id, self._attendants, self._transport = router_id, attendants, transport
        self._http: dict[int, httpx.AsyncClient] = {}  # by how many it asks at once
        self._once = Once()

    @property
    def keys(self) -> set[bytes]:
        """What may have sealed a request to us; none where replicas share no key."""
        return {runner.shared_key for runner in self._attendants.values() if runner.shared_key}

    def leads(self, vhost: str) -> bool:
        """Whether this router does."""
        runner = self._attendants.get(vhost)
        return runner is not None and runner.leadership.is_ours

    def of(self, vhost: str) -> Claim | None:
        """Another router that leads and can be asked; None: none that is known."""
        runner = self._attendants.get(vhost)
        claim = None if runner is None else runner.leadership.leader
        return claim if claim is not None and claim.url and not self._is_unreachable(claim) else None

    def is_hopeless(self, vhost: str) -> bool:
        """Whether nobody can be asked within moments: nobody led for seconds, or whoever does cannot be reached."""
        if (runner := self._attendants.get(vhost)) is None:
            return True
        is_hidden = runner.leadership.leader is not None and self.of(vhost) is None
        return (
            is_hidden or runner.topology is None or not runner.shared_key or runner.leadership.leaderless_s is not None
        )

    def why(self, vhost: str) -> str:
        """Why nobody can be asked, and for how long."""
        if (runner := self._attendants.get(vhost)) is None:
            return f"vhost {vhost!r} is not served here any more"
        if (claim := runner.leadership.leader) is None:
            return runner.not_leading()
        if not claim.url:
            return f"vhost {vhost!r} is led by router {claim.router_id!r}, which does not say where it can be asked"
        where = "listens on its own machine only; set DLX_ROUTER_HTTP_HOST, or DLX_ROUTER_ADVERTISED_URL, there"
        return f"vhost {vhost!r} is led by router {claim.router_id!r}, which {where}"

    async def ask(self, vhost: str, claim: Claim, request: Request, takes: Takes = PLAIN) -> Answered:
        """What the leader answers. Unsent, Doubtful, TooLarge."""
        if (runner := self._attendants.get(vhost)) is None:
            raise Unsent(self.why(vhost))
        if not (key := runner.shared_key):
            raise Unsent(f"vhost {vhost!r}: no key is shared any more")  # what is sealed with none is sealed by anybody
        try:
            url = f"{checked(claim.url)}{envelope.PATH}"
        except ValueError as error:
            raise Unsent(f"the leader's address: {error}") from None
        nonce = secrets.token_hex(16)
        headers = envelope.seal(key, request, to=claim.router_id, now_ms=wall_ms(), nonce=nonce)
        status, answer_headers, body = await self._exchange(url, headers, request.body, takes)
        who = f"router {claim.router_id!r}"
        try:
            head, mac = answer_headers.get(envelope.HEAD, ""), answer_headers.get(envelope.MAC, "")
            answered = envelope.unseal_answer(key, head, mac, body, nonce=nonce)
        except Unsealed as error:
            self._once.warn(claim.url, "api.forward_refused", url=claim.url, status=status, error=str(error))
            why = f"{who} at {claim.url} does not answer as a router with the same key does (HTTP {status})"
            raise (Unsent if status in _NOT_TAKEN else Doubtful)(why) from None
        self._once.healed(claim.url, "api.forwarded", url=claim.url)
        if answered.is_elsewhere:
            raise Unsent(f"{who} does not lead vhost {vhost!r} any more")
        return answered

    async def close(self) -> None:
        """Ends the connections."""
        for client in self._http.values():
            await client.aclose()

    def _is_unreachable(self, claim: Claim) -> bool:
        """An address of its own machine, which is another than ours: there we would ask ourselves, or a stranger."""
        host = httpx.URL(claim.url).host
        return is_loopback(host) and _machine(claim.router_id) != _machine(self.router_id)

    async def _exchange(
        self, url: str, headers: envelope.Headers, body: bytes, takes: Takes
    ) -> tuple[int, httpx.Headers, bytes]:
        how = {**headers, "content-type": "application/octet-stream", "accept-encoding": "identity"}
        within = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=ANSWER_S + takes.waits_s)
        http = self._client(AT_ONCE if takes is PLAIN else WAITING)
        try:
            async with http.stream("POST", url, content=body, headers=how, timeout=within) as answer:
                read = bytearray()
                async for piece in answer.aiter_raw():
                    read += piece
                    if len(read) > takes.most_bytes:
                        raise Doubtful(f"the leader's answer is over {takes.most_bytes} bytes; ask for fewer")
                return answer.status_code, answer.headers, bytes(read)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL) as error:
            raise Unsent(f"the leader at {url} cannot be reached: {str(error) or type(error).__name__}") from None
        except httpx.TransportError as error:
            raise Doubtful(f"the leader at {url} did not answer: {str(error) or type(error).__name__}") from None

    def _client(self, most: int) -> httpx.AsyncClient:
        if most not in self._http:
            self._http[most] = httpx.AsyncClient(
                transport=self._transport,
                trust_env=False,  # no proxy of the environment sees what people ask
                follow_redirects=False,
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=0),
            )
        return self._http[most]


# What our own gate answers to what it cannot unseal. A 503 may be a proxy's, which has sent the request on.
_NOT_TAKEN: Final = frozenset({401, 403, 404, 405, 413})


def _machine(router_id: str) -> str:
    """A router's id is its machine's name and chance."""
    return router_id.rpartition("-")[0]
