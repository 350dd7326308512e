"""The management API: what AMQP cannot tell, above all which policies touch our own queues."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx

from dlx_router.core.names import Names

TIMEOUT_S: Final = 10.0
HARMFUL: Final = ("message-ttl", "max-length", "max-length-bytes", "overflow", "expires", "delivery-limit")


class ManagementError(Exception):
    """The API did not answer as it should; the text names host and path, never credentials."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A policy that would cost letters on a queue of ours."""

    vhost: str
    queue: str
    policy: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        keys = ", ".join(self.keys)
        return (
            f"policy {self.policy!r} sets {keys} on {self.queue!r} in vhost {self.vhost!r}; "
            "exclude the router's queues from its pattern, or shadow it by a policy of higher priority"
        )


def harmful(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of an effective policy definition that would shorten, expire or redirect one of our queues."""
    return tuple(sorted(key for key in definition if key in HARMFUL or key.startswith("dead-letter-")))


class Management:
    """Asks the API; `url` with credentials."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._where = f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}"
        self._client = httpx.AsyncClient(
            base_url=f"{self._where}{parts.path.rstrip('/')}/api/", timeout=TIMEOUT_S, trust_env=False,
            auth=(parts.username or "guest", parts.password or "guest"),
        )

    def __repr__(self) -> str:
        return f"Management({self._where})"

    async def vhosts(self) -> list[str]:
        """The names of all vhosts that the user may see."""
        return [vhost["name"] for vhost in await self._get("vhosts")]

    async def check_own_queues(self, vhost: str, names: Names) -> list[Problem]:
        """The policies that must not stand, for every queue of ours that exists."""
        columns = "name,policy,operator_policy,effective_policy_definition"
        queues = await self._get(f"queues/{quote(vhost, safe='')}?disable_stats=true&enable_queue_totals=true&columns={columns}")
        found = [queue for queue in queues if names.is_own(queue["name"])]
        return [problem for queue in found if (problem := _problem(vhost, queue)) is not None]

    async def _get(self, path: str) -> Any:
        try:
            answer = await self._client.get(path)
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            raise ManagementError(f"{self._where}/api/{path}: {error.response.status_code}") from None
        except (httpx.HTTPError, ValueError) as error:
            raise ManagementError(f"{self._where}: {type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _problem(vhost: str, queue: Mapping[str, Any]) -> Problem | None:
    keys = harmful(queue.get("effective_policy_definition") or {})
    if not keys:
        return None
    named = [str(queue[kind]) for kind in ("policy", "operator_policy") if queue.get(kind)]
    return Problem(vhost, queue["name"], " + ".join(named) or "?", keys)
