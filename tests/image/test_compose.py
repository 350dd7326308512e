"""docker-compose.yml as its first lines and README say: by its own commands, in a folder of its own.

Where there is no Docker `docker compose` is tools/containers/compose, and Grafana's image is not to be had.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.docs.pages import ROOT, read
from tests.support.eventually import eventually
from tools.containers import stand_ins
from tools.containers.engine import Engine

COPIED: Final = (
    "docker-compose.yml", ".env.example", "Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt",
    "README.md", "LICENSE", "dlx_router", "deploy", "charts", "policies",
)  # fmt: skip
UP: Final = "docker compose up --build --detach"
DOWN: Final = "docker compose down --volumes"


class Composed:
    """A folder with a copy of what compose needs, and `docker` on the path."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder / "dlx-router"
        self.ports = {port: port for port in (5672, 9090, 9719, 15672)}
        self._programs = folder / "bin"
        for path in (self.folder, self._programs):
            path.mkdir()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2  # with its time: a layer is known by it
            copy(ROOT / name, self.folder / name)
        if engine.is_podman:
            self._shim()

    def _shim(self) -> None:
        path = self._programs / "docker"
        text = f'#!/bin/sh\nshift\nexec "{sys.executable}" -m tools.containers.compose "$@"\n'
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run(self, text: str) -> str:
        """What commands printed, as they stand on a page."""
        ports_file = self.folder / "ports.json"
        own = {"COMPOSE_WITHOUT": "grafana", "COMPOSE_PORTS": str(ports_file), "PYTHONPATH": str(ROOT)}
        env = {**os.environ, **own, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        argv = ["bash", "-e", "-u", "-o", "pipefail", "-c", text]
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        if ports_file.exists():
            self.ports = {int(port): here for port, here in json.loads(ports_file.read_text()).items()}
        return done.stdout

    def ask(self, port: int, path: str, **more: Any) -> httpx.Response:
        """By a port as the file publishes it."""
        return httpx.get(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=5, trust_env=False, **more)


@pytest.fixture(scope="module")
def composed(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """All of it runs."""
    project = Composed(engine, tmp_path_factory.mktemp("compose"))
    stand_ins.provide(engine, stand_ins.PYTHON, stand_ins.BROKER, stand_ins.PROMETHEUS)
    try:
        project.run("\n".join(_steps()))
        yield project
    finally:
        project.run(DOWN)


def _steps() -> list[str]:
    """What README says to type, and the file itself."""
    (block,) = [
        candidate
        for candidate in read(ROOT / "README.md").blocks
        if any("compose up" in line for line in candidate.commands)
    ]
    return list(block.commands)


def test_readme_and_the_file_say_the_same() -> None:
    head = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").split("\nname:")[0]
    comments = [line.removeprefix("#").strip() for line in head.splitlines()]
    assert _steps() == [line for line in comments if "compose up" in line]
    assert UP in _steps()[0]


def _metric(composed: Composed, pattern: str) -> float:
    text = composed.ask(9719, "/metrics").text
    return sum(float(value) for value in re.findall(rf"^dlx_router_{pattern} (\S+)$", text, re.MULTILINE))


def test_the_router_is_ready_and_routes_what_the_shop_rejects(composed: Composed) -> None:
    eventually(lambda: composed.ask(9719, "/readyz").status_code == 200, within=60, every=0.5)
    eventually(lambda: _metric(composed, r'decisions_total\{.*action="retry".*\}') > 3, within=60, every=0.5)


def test_prometheus_scrapes_router_and_broker_and_its_rules_are_loaded(composed: Composed) -> None:
    def up() -> dict[str, str]:
        targets = composed.ask(9090, "/api/v1/targets").json()["data"]["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets}

    eventually(lambda: _answered(up) == {"dlx-router": "up", "rabbitmq": "up"}, within=90, every=1)

    def states() -> dict[str, str]:
        groups = composed.ask(9090, "/api/v1/rules").json()["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    # Of a real broker too: an alert about its series once failed at each evaluation, and so never fired.
    eventually(lambda: {*states().values()} == {"ok"}, within=120, every=1)
    assert len(states()) > 10


def _answered(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except httpx.TransportError as error:
        return error


def test_people_log_in_to_the_console_by_the_token_of_env_and_see_what_failed(composed: Composed) -> None:
    (token,) = re.findall(r"^CONSOLE_TOKEN=(.+)$", (composed.folder / ".env").read_text(), re.MULTILINE)
    with httpx.Client(base_url=f"http://127.0.0.1:{composed.ports[9719]}", timeout=60, trust_env=False) as web:
        assert web.get("/letters").headers["location"].startswith("/login")
        assert web.post("/login", data={"token": token}).status_code == 303
        assert "me · admin" in web.get("/").text
        asked = {"queue": "orders.new", "format": "json"}
        assert eventually(lambda: web.get("/letters", params=asked).json(), within=60, every=0.5)


def test_commands_in_the_routers_container_are_answered(composed: Composed) -> None:
    _podman_only(composed)
    asked = ("exec", "dlx-router-router", "dlx-router", "queues")
    eventually(lambda: "orders.new" in composed.engine.run(*asked), within=60, every=0.5)


def test_the_routers_root_is_read_only_and_it_has_no_rights(composed: Composed) -> None:
    _podman_only(composed)
    status = composed.engine.run("exec", "dlx-router-router", "cat", "/proc/1/status")
    assert re.search(r"^CapBnd:\s*0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE)
    for path in ("/x", "/opt/dlx-router/x", "/policies/x"):
        done = composed.engine.tried("exec", "dlx-router-router", "touch", path)
        assert "Read-only file system" in done.stderr
    composed.engine.run("exec", "dlx-router-router", "test", "-s", "/var/lib/dlx-router/index.sqlite")


def test_a_killed_router_begins_again_and_goes_on(composed: Composed) -> None:
    _podman_only(composed)
    pid = int(composed.engine.inspect("container", "dlx-router-router")["State"]["Pid"])
    os.kill(pid, signal.SIGKILL)  # not by the engine: what is stopped by somebody is not begun again
    eventually(lambda: composed.engine.inspect("container", "dlx-router-router")["RestartCount"] == 1, within=30)
    eventually(lambda: _answered(lambda: composed.ask(9719, "/readyz").status_code) == 200, within=60, every=0.5)
    eventually(lambda: _metric(composed, r'decisions_total\{.*action="retry".*\}') > 0, within=60, every=0.5)


def test_a_broker_that_is_restarted_keeps_its_data_and_the_shop_goes_on(composed: Composed) -> None:
    _podman_only(composed)
    composed.engine.run("restart", "--time", "30", "dlx-router-rabbitmq", within_s=90)
    eventually(lambda: _answered(lambda: composed.ask(9719, "/readyz").status_code) == 200, within=90, every=0.5)
    before = _metric(composed, r'decisions_total\{.*action="retry".*\}')
    eventually(lambda: _metric(composed, r'decisions_total\{.*action="retry".*\}') > before, within=60, every=0.5)


@pytest.mark.parametrize("service", ["shop", "router"])
def test_a_service_that_is_stopped_ends_by_itself_within_its_grace(composed: Composed, service: str) -> None:
    """137 is what was killed; what ignores SIGTERM takes all of its grace."""
    _podman_only(composed)
    name = f"dlx-router-{service}"
    composed.engine.run("stop", name)
    assert composed.engine.inspect("container", name)["State"]["ExitCode"] in {0, 143}


def test_the_pipeline_runs_by_the_command_of_the_file(composed: Composed) -> None:
    head = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").split("\nname:")[0]
    (line,) = re.findall(r"^# +(docker compose --profile pipeline .+?)(?:    .*)?$", head, re.MULTILINE)
    assert "ingest" in composed.run(line)


def _podman_only(composed: Composed) -> None:
    if not composed.engine.is_podman:
        pytest.skip("names of containers are Docker's own")
