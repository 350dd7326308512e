"""What is in the images, and that the router works in one that may do nothing else."""

import io
import json
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final

import pytest

from tests.image.container import Container
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tools.containers.engine import Engine

MEGABYTE: Final = 1_000_000
AT_MOST_MB: Final = 250
USER: Final = "10001:10001"
POLICIES: Final = """
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition:
      max-delivery-attempts: 2
      redelivery-delay: 100ms
      never-retry: ["body('/total') == 13"]   # CEL: its library is in the image
"""
DRAIN_S: Final = 25
GRACE_S: Final = 40
_SECRETS: Final = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\n"
    rb"|(?:amqps?|https?)://[^\s:/@'\"{<]+:[^\s@'\"{<]+@(?!HOST|localhost|127\.0\.0\.1|rabbit)"
    rb"|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{36}|pypi-AgEI"
)


class Contents:
    """All files of an image, as a container of it would see them."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.config: dict[str, Any] = json.loads(engine.run("image", "inspect", "--format", "{{json .Config}}", image))
        self.files: dict[str, tarfile.TarInfo] = {}
        self.telling: list[tuple[str, str]] = []
        name = engine.run("create", "--pull=never", "--network", "none", image).split()[-1]
        try:
            self._read([*engine.argv, "export", name], engine.environment)
        finally:
            engine.tried("rm", "--force", name)

    def _read(self, argv: list[str], environment: dict[str, str]) -> None:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    self.files[member.name.removeprefix("./")] = member
                    if member.isfile() and member.size < MEGABYTE and "site-packages/" not in member.name:
                        self._look(member.name, archive.extractfile(member) or io.BytesIO())

    def _look(self, name: str, text: Any) -> None:
        if match := _SECRETS.search(text.read()):
            self.telling.append((name, match[0].decode(errors="replace")))

    def largest(self, count: int = 12) -> Iterator[str]:
        """Where the bytes are: lines of megabytes and folder."""
        sizes: Counter[str] = Counter()
        for name, member in self.files.items():
            sizes["/".join(PurePosixPath(name).parts[: 6 if name.startswith("opt/") else 3])] += member.size
        for name, size in sizes.most_common(count):
            yield f"{size / MEGABYTE:6.1f} MB  {name}"


@pytest.fixture(scope="module")
def router(engine: Engine, router_image: str) -> Contents:
    return Contents(engine, router_image)


@pytest.fixture(scope="module")
def pipeline(engine: Engine, pipeline_image: str) -> Contents:
    return Contents(engine, pipeline_image)


@pytest.fixture(params=["router", "pipeline"])
def contents(request: pytest.FixtureRequest) -> Contents:
    chosen: Contents = request.getfixturevalue(request.param)
    return chosen


def test_the_routers_image_has_at_most_250_mb(engine: Engine, router_image: str, router: Contents) -> None:
    size = int(engine.run("image", "inspect", "--format", "{{.Size}}", router_image))
    parts = "\n".join(router.largest())
    sys.stdout.write(f"\n{size / MEGABYTE:.0f} MB, of which\n{parts}\n")
    assert size <= AT_MOST_MB * MEGABYTE, parts


def test_it_has_no_secret(contents: Contents) -> None:
    assert contents.telling == []
    assert _SECRETS.search(json.dumps(contents.config).encode()) is None
    full = [name for name, member in contents.files.items() if member.size]  # what a build mounts leaves an empty file
    assert [name for name in full if name.endswith((".key", ".git", ".env", "pip.conf", ".netrc"))] == []


def test_its_history_has_no_secret_and_names_no_place_of_this_machine(
    engine: Engine, request: pytest.FixtureRequest
) -> None:
    for image in ("router_image", "pipeline_image"):
        history = engine.run("history", "--no-trunc", "--format", "{{.CreatedBy}}", request.getfixturevalue(image))
        assert "compileall" not in history, "of the last stage alone"
        assert _SECRETS.search(history.encode()) is None
        assert [word for word in history.split() if word.startswith(("/root", "/home", "http_proxy"))] == []


def test_it_is_nobody_who_could_change_it(contents: Contents) -> None:
    assert contents.config["User"] == USER
    ours = [name for name, member in contents.files.items() if member.uid == 10001]
    assert [name for name in ours if not name.startswith("var/lib/dlx-router")] == []
    open_to_all = [name for name, member in contents.files.items() if member.mode & 0o002 and not member.issym()]
    assert [name for name in open_to_all if name.rstrip("/") not in {"tmp", "var/tmp", "run/lock"}] == []


def test_a_letter_is_routed_by_a_container_that_may_do_nothing_else(
    start: Callable[..., Container], amqp: Client
) -> None:
    router = start(POLICIES, DRAIN_SECONDS=str(DRAIN_S))
    assert router.ask("/livez")[0] == 200
    amqp.queue("orders.new", dead_letter_exchange=INBOX)
    amqp.publish('{"total": 12}', key="orders.new")
    for _ in range(2):
        amqp.fail("orders.new")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b'{"total": 12}'
    amqp.publish('{"total": 13}', key="orders.new")
    amqp.fail("orders.new")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b'{"total": 13}', "decided by a condition"
    assert _status(router) == {"Uid": "10001", "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    for path in ("/x", "/opt/dlx-router/x", "/etc/x"):
        with pytest.raises(Exception, match="Read-only file system"):
            router.within("touch", path)
    router.within("touch", "/tmp/x")


def _status(router: Container) -> dict[str, str]:
    lines = dict(line.split(":", 1) for line in router.within("cat", "/proc/1/status").splitlines())
    return {name: lines[name].split()[0] for name in ("Uid", "CapEff", "CapBnd", "NoNewPrivs")}


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
def test_its_health_check_asks_the_port_that_is_set_and_no_proxy(start: Callable[..., Container], proxy: str) -> None:
    router = start(POLICIES, "--env", f"http_proxy={proxy}")
    assert router.port != 9719
    if router.engine.is_podman:
        router.engine.run("healthcheck", "run", router.name)
    else:
        eventually(lambda: router.state["Health"]["Status"] == "healthy", within=40)


def test_sigterm_drains_within_the_grace_and_costs_no_letter(start: Callable[..., Container], amqp: Client) -> None:
    router = start(POLICIES, DRAIN_SECONDS=str(DRAIN_S))
    amqp.queue("orders.new", dead_letter_exchange=INBOX)
    letters = {f'{{"total": 13, "n": {number}}}'.encode() for number in range(500)}
    for body in sorted(letters):
        amqp.publish(body, key="orders.new")
    for _ in letters:
        amqp.fail("orders.new")
    assert router.stop(GRACE_S) == 0, router.output[-2000:]
    assert not router.state["Running"]
    begun_again = start(POLICIES)
    eventually(lambda: amqp.depth("DLQ.orders.new") >= len(letters), within=30)
    bodies = [amqp.await_message("DLQ.orders.new").ack().body for _ in range(amqp.depth("DLQ.orders.new"))]
    assert {*bodies} == letters
    assert begun_again.stop(GRACE_S) == 0


def test_the_router_keeps_to_the_memory_that_the_chart_gives_it(start: Callable[..., Container], amqp: Client) -> None:
    router = start(POLICIES, "--memory", "512m")
    _skip_without_memory_limits(router)
    amqp.queue("orders.new", dead_letter_exchange=INBOX)
    for number in range(2000):
        amqp.publish(f'{{"total": 13, "n": {number}, "more": "{"x" * 4000}"}}', key="orders.new")
    for _ in range(2000):
        amqp.fail("orders.new")
    eventually(lambda: amqp.exists("DLQ.orders.new") and amqp.depth("DLQ.orders.new") == 2000, within=60)
    assert not router.state["OOMKilled"]
    used = int(router.within("cat", _memory_file(router, "usage")))
    assert used < 512 * 1024 * 1024 * 0.75, f"{used / MEGABYTE:.0f} MB"


def test_a_limit_that_is_too_small_ends_the_router_and_costs_no_letter(
    start: Callable[..., Container], amqp: Client
) -> None:
    router = start(POLICIES, "--memory", "24m", "--memory-swap", "24m", wait=False)
    eventually(lambda: not router.state["Running"], within=60, every=0.5)
    if not router.state["OOMKilled"] and router.state["ExitCode"] != 137:
        pytest.skip(f"no memory limit on this machine: {router.state}")
    amqp.queue("orders.new", dead_letter_exchange=INBOX)
    amqp.publish('{"total": 13}', key="orders.new")
    start(POLICIES, "--memory", "512m")
    amqp.fail("orders.new")
    assert amqp.await_message("DLQ.orders.new", within=30).ack().body == b'{"total": 13}'


def _memory_file(router: Container, what: str) -> str:
    """Version 2 of cgroups, or 1."""
    newer, older = {
        "usage": ("memory.current", "memory/memory.usage_in_bytes"),
        "limit": ("memory.max", "memory/memory.limit_in_bytes"),
    }[what]
    return f"/sys/fs/cgroup/{newer if 'memory.max' in router.within('ls', '/sys/fs/cgroup').split() else older}"


def _skip_without_memory_limits(router: Container) -> None:
    if router.within("cat", _memory_file(router, "limit")).strip() != str(512 * 1024 * 1024):
        pytest.skip("this machine lets nobody limit memory")


def test_the_pipeline_has_java_and_says_what_it_can(engine: Engine, pipeline_image: str) -> None:
    plain = ("run", "--rm", "--pull=never", "--network", "none", "--read-only", "--cap-drop", "ALL")
    assert "ingest" in engine.run(*plain, pipeline_image)
    assert "17" in engine.tried(*plain, "--entrypoint", "java", pipeline_image, "-version").stderr
