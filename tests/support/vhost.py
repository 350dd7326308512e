"""A virtual host of one test's own, made and removed by the management API (fast: no rabbitmqctl)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tools.brokers import Broker


class _Patient(httpx.HTTPTransport):
    """The broker ends idle connections when it likes: what it did not begin to answer is asked once more."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.RemoteProtocolError:
            return super().handle_request(request)


@dataclass(frozen=True)
class Vhost:
    """Where one test lives. `api` is the management API with an administrator's rights."""

    broker: Broker
    name: str
    api: httpx.Client

    @classmethod
    def make(cls, broker: Broker, name: str) -> "Vhost":
        """A fresh, empty vhost, all rights given to the broker URL's user."""
        parts = urlsplit(broker.management_url)
        user, password = parts.username or "guest", parts.password or "guest"
        bare = f"{parts.scheme}://{parts.hostname}:{parts.port}/api/"
        verify = NO_TLS if parts.scheme == "http" else True
        transport = _Patient(trust_env=False, verify=verify)
        client = httpx.Client(base_url=bare, auth=(user, password), timeout=60, trust_env=False, transport=transport)
        vhost = cls(broker, name, client)
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        vhost.put(f"vhosts/{vhost.quoted}")
        vhost.put(f"permissions/{vhost.quoted}/{quote(user, safe='')}", everything)
        return vhost

    @property
    def quoted(self) -> str:
        """The name as a part of a URL."""
        return quote(self.name, safe="")

    @property
    def amqp_url(self) -> str:
        """For a client of this vhost."""
        return f"{self.broker.amqp_base}/{self.quoted}"

    @property
    def management_url(self) -> str:
        """Of the whole broker."""
        return self.broker.management_url

    def put(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """PUT under /api/; raises on any refusal."""
        self.api.put(path, json=dict(body or {})).raise_for_status()

    def get(self, path: str) -> Any:
        """GET under /api/, decoded."""
        return self.api.get(path).raise_for_status().json()

    def policy(self, name: str, pattern: str, definition: Mapping[str, Any], *, priority: int = 0) -> None:
        """Set a RabbitMQ policy for queues."""
        body = {"pattern": pattern, "definition": dict(definition), "priority": priority, "apply-to": "queues"}
        self.put(f"policies/{self.quoted}/{name}", body)

    def queues(self) -> list[str]:
        """Names of all queues, sorted."""
        return sorted(queue["name"] for queue in self.get(f"queues/{self.quoted}?columns=name"))

    def close(self) -> None:
        """Remove the vhost with all in it; safe where the broker is gone."""
        try:
            self.api.delete(f"vhosts/{self.quoted}")
        except httpx.TransportError:
            pass  # a test stopped its own broker
        finally:
            self.api.close()


def connections(vhost: Vhost, role: str) -> list[str]:
    """Names, by the management API, of what routers opened in this role; it knows a connection some seconds late."""
    every = vhost.get(f"vhosts/{vhost.quoted}/connections")
    return [each["name"] for each in every if f"dlx-router {role}" in each.get("user_provided_name", "")]


def cut(vhost: Vhost, role: str) -> None:
    """Close the router's connection of this name, as an operator would."""
    for name in eventually(lambda: connections(vhost, role), within=15):
        vhost.api.delete(f"connections/{name}", headers={"X-Reason": "cut"})
