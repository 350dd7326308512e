"""`docker compose` for podman, as far as docker-compose.yml needs it: what it does not know it refuses.

    python -m tools.containers.compose up --build --detach
    python -m tools.containers.compose down --volumes

Beside the file it obeys two variables: COMPOSE_WITHOUT leaves services out whose image is not to be had (Grafana), and
COMPOSE_PORTS names a file to write the published ports to. A port that is taken here is replaced by a free one.
"""

import argparse
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

import yaml

from tools.brokers import BrokerError, free_port
from tools.containers import stand_ins
from tools.containers.engine import Engine, EngineError, engine

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_HEALTHY_S: Final = 120
_STARTED: Final = "service_started"
_HEALTHY: Final = "service_healthy"

Service = Mapping[str, Any]


class ComposeError(Exception):
    """The file asks for what this program does not know, or a service did not become what others wait for."""


def load(folder: Path) -> dict[str, Any]:
    """docker-compose.yml of a folder, with the variables of .env and of this process put in."""
    variables = dict(_lines(folder / ".env")) | dict(os.environ)
    text = (folder / "docker-compose.yml").read_text(encoding="utf-8")
    filled = _VARIABLE.sub(lambda match: variables.get(match[1], match[2] or ""), text)
    loaded: dict[str, Any] = yaml.safe_load(filled.replace("$$", "$"))
    return loaded


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            yield name.strip(), value.strip()


def _seconds(text: str) -> int:
    if not text.endswith("s") or not text[:-1].isdigit():
        raise ComposeError(f"{text} is no whole number of seconds: nothing else is known here")
    return int(text[:-1])


def _entrypoint(words: list[str]) -> list[str]:
    return ["--entrypoint", json.dumps(words)]


def _health(check: Mapping[str, Any]) -> list[str]:
    if check.get("disable"):
        return ["--no-healthcheck"]
    kind, *words = check["test"]
    if kind != "CMD":
        raise ComposeError(f"healthcheck of kind {kind}: only CMD is known")
    named = {key: check[key] for key in ("interval", "timeout", "retries") if key in check}
    return ["--health-cmd", json.dumps(words), *(f"--health-{key}={value}" for key, value in named.items())]


# A read-only root has no writable folders but those that the file names: podman would add some.
_OPTIONS: Final[Mapping[str, Callable[[Any], list[str]]]] = {
    "hostname": lambda name: ["--hostname", name],
    "environment": lambda variables: [word for key, value in variables.items() for word in ("--env", f"{key}={value}")],
    "read_only": lambda flag: ["--read-only", "--read-only-tmpfs=false"] if flag else [],
    "tmpfs": lambda paths: [word for path in paths for word in ("--tmpfs", path)],
    "cap_drop": lambda names: [word for name in names for word in ("--cap-drop", name)],
    "security_opt": lambda options: [
        word for option in options for word in ("--security-opt", option.removesuffix(":true"))
    ],
    "entrypoint": _entrypoint,
    "healthcheck": _health,
    "restart": lambda how: ["--restart", how],
    "init": lambda flag: ["--init"] if flag else [],
    "stop_grace_period": lambda text: ["--stop-timeout", str(_seconds(text))],
}
_ELSEWHERE: Final = frozenset({"image", "build", "command", "ports", "volumes", "depends_on", "profiles"})


class Project:
    """The services of a folder's docker-compose.yml, as containers `NAME-SERVICE` in a network of their own."""

    def __init__(self, engine: Engine, folder: Path, *, without: frozenset[str] = frozenset()) -> None:
        """`without`: services that are left out."""
        self.engine = engine
        self.folder = folder
        document = load(folder)
        self.name = str(document["name"])
        self.services: dict[str, Service] = {
            key: service for key, service in document["services"].items() if key not in without
        }
        self.ports: dict[int, int] = {}
        for key, service in self.services.items():
            if strange := sorted({*service} - {*_OPTIONS} - _ELSEWHERE):
                raise ComposeError(f"service {key} has {', '.join(strange)}: not known here")

    def container(self, service: str) -> str:
        """Its name for the engine."""
        return f"{self.name}-{service}"

    def build(self, *keys: str) -> None:
        """The images of these services, of all without a profile where none is named."""
        for key in keys or [key for key, service in self.services.items() if "profiles" not in service]:
            if section := self.services[key].get("build"):
                context = self.folder / section["context"]
                self.engine.build(context, tag=self.image(key), target=section["target"])

    def image(self, service: str) -> str:
        """What it runs."""
        settings = self.services[service]
        return str(settings["image"]) if "image" in settings else f"localhost/{self.name}-{service}"

    def up(self) -> None:
        """Every service without a profile runs, each after what it waits for."""
        if self.engine.tried("network", "exists", self.name).returncode:
            self.engine.run("network", "create", self.name)
        for key in self.order():
            for other, condition in _waits(self.services[key]).items():
                self._await(other, condition)
            self._start(key)

    def order(self) -> list[str]:
        """Services without a profile, each after what it waits for."""
        wanted = {key: _waits(service) for key, service in self.services.items() if "profiles" not in service}
        return [*TopologicalSorter({key: waits.keys() for key, waits in wanted.items()}).static_order()]

    def _start(self, key: str) -> None:
        words = ["run", "--detach", "--name", self.container(key), *self.options(key), self.image(key)]
        self.engine.run(*words, *self.services[key].get("command", []))

    def once(self, key: str, *command: str, within_s: float = 300) -> str:
        """What a command in a new container of this service printed; its image is built where it is missing."""
        if not self.engine.has_image(self.image(key)):
            self.build(key)
        words = ["run", "--rm", "--name", f"{self.container(key)}-run", *self.options(key), self.image(key)]
        return self.engine.run(*words, *(command or self.services[key].get("command", [])), within_s=within_s)

    def options(self, key: str) -> list[str]:
        """For the engine, but for image and command."""
        service = self.services[key]
        own = [word for name, value in service.items() if name in _OPTIONS for word in _OPTIONS[name](value)]
        mounts = [word for volume in service.get("volumes", []) for word in ("--volume", self._volume(volume))]
        ports = [word for port in service.get("ports", []) for word in ("--publish", self._published(port))]
        return ["--pull=never", "--network", self.name, "--network-alias", key, *own, *mounts, *ports]

    def _volume(self, volume: str) -> str:
        source, _, inside = volume.partition(":")
        return f"{self.folder / source}:{inside}" if source.startswith("./") else f"{self.name}_{source}:{inside}"

    def _published(self, mapping: str) -> str:
        host, port, inside = mapping.split(":")
        self.ports[int(port)] = int(port) if _is_free(host, int(port)) else free_port()
        return f"{host}:{self.ports[int(port)]}:{inside}"

    def _await(self, service: str, condition: str) -> None:
        """Podman has its health checks begun by systemd, which need not be here: they are begun by us."""
        if condition == _STARTED:
            return
        if condition != _HEALTHY:
            raise ComposeError(f"depends_on {service}: {condition} is not known here")
        deadline = time.monotonic() + _HEALTHY_S
        while (done := self.engine.tried("healthcheck", "run", self.container(service))).returncode:
            if time.monotonic() > deadline:
                log = self.engine.tried("logs", "--tail", "30", self.container(service))
                raise ComposeError(f"{service} is not healthy: {done.stdout}{done.stderr}{log.stdout}{log.stderr}")
            time.sleep(1)

    def down(self, *, volumes: bool = False) -> None:
        """No container and no network of it is left, nor its volumes where that is asked for."""
        for key in reversed(self.services):
            self.engine.tried("stop", self.container(key))
            self.engine.remove(self.container(key))
        self.engine.tried("network", "rm", "--force", self.name)
        if volumes:
            names = self.engine.run("volume", "ls", "--quiet").split()
            for name in (candidate for candidate in names if candidate.startswith(f"{self.name}_")):
                self.engine.tried("volume", "rm", "--force", name)


def _waits(service: Service) -> dict[str, str]:
    dependencies = service.get("depends_on", {})
    if isinstance(dependencies, list):
        return dict.fromkeys(dependencies, _STARTED)
    return {key: dependency["condition"] for key, dependency in dependencies.items()}


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


def main(argv: list[str] | None = None) -> int:
    """0 done · 1 a service does not run · 2 wrong use."""
    parser = argparse.ArgumentParser(description="docker compose, by podman.")
    parser.add_argument("--profile")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start all")
    up.add_argument("--build", action="store_true")
    up.add_argument("--detach", action="store_true")
    commands.add_parser("down", help="stop all").add_argument("--volumes", action="store_true")
    run = commands.add_parser("run", help="one command in a new container")
    run.add_argument("--rm", action="store_true")
    run.add_argument("service")
    run.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args(argv)
    try:
        _done(given)
    except (ComposeError, EngineError, BrokerError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _done(given: argparse.Namespace) -> None:
    without = frozenset(os.environ.get("COMPOSE_WITHOUT", "").split())
    project = Project(engine(), Path.cwd(), without=without)
    if given.command == "down":
        project.down(volumes=given.volumes)
    elif given.command == "run":
        print(project.once(given.service, *given.words), end="")
    else:
        stand_ins.provide(project.engine, stand_ins.PYTHON, stand_ins.BROKER, stand_ins.PROMETHEUS)
        if given.build:
            project.build()
        project.up()
        if path := os.environ.get("COMPOSE_PORTS"):
            Path(path).write_text(json.dumps(project.ports), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
