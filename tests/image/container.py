"""A router in a container that shares the network of this machine, asked over HTTP as any other."""

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tests.support.answers import status_and_text
from tests.support.eventually import eventually
from tools.brokers import free_port
from tools.containers.engine import Engine

# As docker-compose.yml and the chart ask for it. The folders that podman would make writable are not.
HARDENED: Final = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


class Container:
    """Not started yet; `close` leaves nothing of it."""

    def __init__(self, engine: Engine, image: str, name: str) -> None:
        self.engine = engine
        self.image = image
        self.name = name
        self.port = free_port()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False)

    def start(self, *options: str, settings: Mapping[str, str], command: tuple[str, ...] = ()) -> None:
        """It was begun when this returns."""
        self.engine.remove(self.name)
        environment = {"HTTP_PORT": str(self.port), **settings}
        variables = [word for key, value in environment.items() for word in ("--env", f"DLX_ROUTER_{key}={value}")]
        plain = ["--read-only-tmpfs=false"] if self.engine.is_podman and "--read-only" in options else []
        words = ["run", "--detach", "--pull=never", "--name", self.name, "--network", "host", *plain, *options]
        self.engine.run(*words, *variables, self.image, *command)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of a GET; (0, why) if nobody answers."""
        return status_and_text(self._http, path)

    def await_ready(self, within: float = 60) -> None:
        """/readyz says 200; what the container printed if it does not."""

        def ready() -> bool:
            status, text = self.ask("/readyz")
            assert status == 200, f"/readyz: {status} {text}\n{self.output[-3000:]}"
            return True

        eventually(ready, within, every=0.1)

    def within(self, *argv: str) -> str:
        """What a command in it printed."""
        return self.engine.run("exec", self.name, *argv)

    @property
    def state(self) -> dict[str, Any]:
        """Running, ExitCode, OOMKilled and so on."""
        state: dict[str, Any] = json.loads(self.engine.run("inspect", "--format", "{{json .State}}", self.name))
        return state

    @property
    def output(self) -> str:
        """All that it printed."""
        done = self.engine.tried("logs", self.name)
        return done.stdout + done.stderr

    def stop(self, grace_s: int) -> int:
        """SIGTERM, and SIGKILL after the grace; its exit code."""
        self.engine.run("stop", "--time", str(grace_s), self.name, within_s=grace_s + 30)
        return int(self.state["ExitCode"])

    def close(self) -> None:
        """Killed and removed."""
        self.engine.remove(self.name)
        self._http.close()
