"""Brokers that are no process of ours: one that is given by URL, and one in a container (testcontainers, an extra)."""

import json
import subprocess
import time
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPBasicAuthHandler, HTTPPasswordMgrWithDefaultRealm, build_opener

from tools.brokers.node import free_port
from tools.brokers.programs import BrokerError

_READY_S: Final = 90


class GivenNode:
    """A broker that somebody else runs: used, never stopped. Its user needs tag administrator (tests make vhosts)."""

    managed: Final = False

    def __init__(self, amqp_url: str, management_url: str | None = None) -> None:
        """Without a management URL: the same host and user on port 15672."""
        parts = urlsplit(amqp_url)
        user = f"{parts.username or 'guest'}:{parts.password or 'guest'}@"
        self.amqp_base = f"{parts.scheme}://{user}{parts.hostname}:{parts.port or 5672}"
        self.amqp_url = f"{self.amqp_base}{parts.path}" if len(parts.path) > 1 else f"{self.amqp_base}/%2F"
        self.management_url = management_url or f"http://{user}{parts.hostname}:15672"
        self.version = _version(self.management_url)

    def rabbitmqctl(self, *args: str) -> str:
        """Not to be had here: raises BrokerError."""
        message = f"a broker given by URL has no rabbitmqctl ({' '.join(args)})"
        raise BrokerError(message)

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It is not ours: raises BrokerError."""
        message = "a broker given by URL is not ours to stop"
        raise BrokerError(message)

    kill = stop

    def close(self) -> None:
        """It stays as it is."""


class ContainerNode:
    """RabbitMQ in a container, removed on `close`; data and ports last over stop and start."""

    managed: Final = True

    def __init__(self, version: str) -> None:
        """Pulls the image where it is not here."""
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an extra, wanted only here

        self._ports = {name: free_port() for name in ("amqp", "management")}
        container = DockerContainer(f"rabbitmq:{version}-management")
        for inside, name in ((5672, "amqp"), (15672, "management")):
            container = container.with_bind_ports(inside, self._ports[name])
        self._container: Any = container.start()
        self.amqp_base = f"amqp://guest:guest@127.0.0.1:{self._ports['amqp']}"
        self.amqp_url = f"{self.amqp_base}/%2F"
        self.management_url = f"http://guest:guest@127.0.0.1:{self._ports['management']}"
        self.version = self._ready()

    def rabbitmqctl(self, *args: str) -> str:
        """What it prints; BrokerError if it fails."""
        code, output = self._container.exec(["rabbitmqctl", "-q", *args])
        if code:
            message = f"rabbitmqctl {' '.join(args)} failed ({code}): {output.decode()}"
            raise BrokerError(message)
        return str(output.decode())

    def start(self) -> None:
        """Serves when this returns."""
        self._container.get_wrapped_container().start()
        self._ready()

    def stop(self) -> None:
        """In order."""
        self._container.get_wrapped_container().stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._container.get_wrapped_container().kill()

    def close(self) -> None:
        """Removed with its data."""
        self._container.stop()

    def _ready(self) -> str:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                return _version(self.management_url)
            except BrokerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def docker_answers() -> bool:
    """A container engine is here and does what it is asked."""
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _version(management_url: str) -> str:
    parts = urlsplit(management_url)
    bare = f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}/api/overview"
    known = HTTPPasswordMgrWithDefaultRealm()
    known.add_password(None, bare, parts.username or "guest", parts.password or "guest")
    try:
        with build_opener(HTTPBasicAuthHandler(known)).open(bare, timeout=10) as answer:
            return str(json.load(answer)["rabbitmq_version"])
    except OSError as error:
        message = f"the management API of the broker at {parts.hostname}:{parts.port} does not answer: {error}"
        raise BrokerError(message) from error
