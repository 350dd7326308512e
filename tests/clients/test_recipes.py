"""The blocks of docs/clients.md for other languages, as they stand: run by these, or read where they cannot be run."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.core import declaration
from tests.clients.conftest import MODULES, missing
from tests.clients.sameness import HERE, Desk
from tests.clients.test_errors import PAGE, block, frames, grouped
from tests.support.client import Client
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools.install import languages

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
FOLDER: Final = HERE / "recipes"
POLICIES: Final = """
version: 1
policies: [{name: all, match: "#", definition: {max-delivery-attempts: 2, redelivery-delay: 100ms}}]
"""
Recipe = Callable[..., str]


@pytest.fixture
def desk(vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path) -> Desk:
    """A router that tries once more: the second death has the first one's headers on it."""
    index = tmp_path / "index.sqlite"
    return Desk(vhost, start_router(POLICIES, INDEX_PATH=str(index)), amqp, index)


@pytest.fixture(params=["node", "go", "java"])
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Recipe:
    """recipe(url, queue, count) → what the program printed, when it has declared so many deaths."""
    return _recipe(request.param, request, tmp_path)


def _recipe(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Recipe:
    text = Path(block(name, tmp_path)).read_text(encoding="utf-8")
    if name == "node":
        program = request.getfixturevalue("node")
        source = text + (FOLDER / "driver.js").read_text(encoding="utf-8")
        return _runs([program], _written(tmp_path / "recipe.js", source), NODE_PATH=str(MODULES))
    if name == "go":
        there = languages.go()
        if there is None:
            missing("Go is not here; make test-clients fetches it")
            raise AssertionError
        source = (FOLDER / "driver.go").read_text(encoding="utf-8") + text
        return _runs([there[0], "run"], _written(tmp_path / "recipe.go", source), **there[1])
    java = languages.java()
    if java is None:
        missing("javac, or RabbitMQ's client for Java, is not here; make test-clients fetches the latter")
        raise AssertionError
    source = (FOLDER / "Driver.java").read_text(encoding="utf-8") + text
    return _runs([java[0], "-cp", java[1]], _written(tmp_path / "Driver.java", source))


def _written(file: Path, source: str) -> str:
    file.write_text(source, encoding="utf-8")
    return str(file)


def _runs(argv: list[str], file: str, **env: str) -> Recipe:
    def run(*given: object) -> str:
        done = subprocess.run(
            [*argv, file, *map(str, given)], env={**os.environ, **env}, capture_output=True, text=True, timeout=200,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


TYPES: Final = {"node": "OutOfStock", "go": "main.OutOfStock", "java": "Driver$OutOfStock"}


def test_a_block_declares_what_ended_a_handler(desk: Desk, recipe: Recipe, request: pytest.FixtureRequest) -> None:
    queue, language = desk.work("errors.work"), request.node.callspec.params["recipe"]
    headers = {"x-mine": "kept", "x-int": 7, "x-list": [1, "two"]}
    for item in ("seven", "eight"):
        desk.amqp.publish(item, key=queue, headers=headers, expiration="60000", message_id="m-1", priority=3)
    assert recipe(desk.vhost.amqp_url, queue, 4, "declare") == ""
    groups = grouped(desk, queue, 2)
    assert {kind for kind, _ in groups} == {TYPES[language]}
    assert sorted(message[:10] for _, message in groups) == ["item eight", "item seven"]
    assert {*groups.values()} == {2}, "each attempt is a death"
    letter = desk.amqp.await_message(f"DLQ.{queue}")
    assert {name: letter.headers[name] for name in headers} == headers
    assert (letter.properties.message_id, letter.properties.priority) == ("m-1", 3)
    assert [(death["queue"], death["count"]) for death in letter.deaths] == [(queue, 2)]
    assert letter.deaths[0]["original-expiration"] == "60000"
    letter.requeue()
    if language != "go":
        assert all("andle" in frame for frame in frames(desk, queue)), "handle, wherever the program lies"


def test_deaths_of_equal_text_that_come_back_are_told_one_and_all(vhost: Vhost, amqp: Client, recipe: Recipe) -> None:
    """In Node.js all but the first were taken for declared; in Go some waited for a confirm that had come before."""
    queue, grave = amqp.queue("errors.work", dead_letter_exchange="graves"), amqp.queue("grave")
    amqp.bind(grave, amqp.exchange("graves", "fanout"))
    amqp.exchange("dlx-router.declared", "fanout")  # and nothing behind it
    for _ in range(40):
        amqp.publish("seven", key=queue)
    assert recipe(vhost.amqp_url, queue, 40, "declare").count("refused no router attends this vhost") == 40
    assert [amqp.take(grave).body for _ in range(40)] == [b"seven"] * 40


def test_a_block_says_so_where_no_router_is(vhost: Vhost, amqp: Client, recipe: Recipe) -> None:
    """It throws, and its driver rejects as before."""
    queue, grave = amqp.queue("errors.work", dead_letter_exchange="graves"), amqp.queue("grave")
    amqp.bind(grave, amqp.exchange("graves", "fanout"))
    amqp.exchange("dlx-router.declared", "fanout")  # and nothing behind it
    amqp.publish("seven", key=queue)
    assert "refused no router attends this vhost" in recipe(vhost.amqp_url, queue, 1, "declare")
    assert amqp.take(grave).body == b"seven"


def test_headers_of_spring_are_read_where_spring_declares(
    desk: Desk, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What its RepublishMessageRecoverer writes, with the header of the block that says where the message was."""
    queue = desk.work("errors.work")
    desk.amqp.publish("seven", key=queue, expiration="60000")
    _recipe("java", request, tmp_path)(desk.vhost.amqp_url, queue, 2, "spring")
    (group,) = grouped(desk, queue, 1)
    assert group[0] == "Driver$OutOfStock", "the innermost error, not the listener's"
    assert group[1].startswith("item seven")
    letter = desk.amqp.await_message(f"DLQ.{queue}").requeue()
    assert letter.deaths[0]["original-expiration"] == "60000"
    assert all(frame.startswith("Driver.handle(") for frame in frames(desk, queue))
    declared = {"queue": queue, "exchange": "", "routing_keys": [queue], "reason": "application:exception"}
    declared["original_expiration"] = "60000"
    members = re.findall(r'"(\w+)", ', Path(block("spring", tmp_path)).read_text(encoding="utf-8"))
    assert {*declared} <= {*members}
    assert declaration.read(json.dumps(declared).encode()).error is None


def test_the_header_of_the_block_for_net_is_read(tmp_path: Path) -> None:
    """Its members, with values such as .NET gives them; the block itself is not run."""
    text = Path(block("dotnet", tmp_path)).read_text(encoding="utf-8")
    members: dict[str, Any] = {"queue": "q", "exchange": "", "routing_keys": ["k"], "reason": "application:exception"}
    error = {"type": "Shop.OutOfStock", "message": "none left", "frame": "at Shop.Orders.Take() in Orders.cs:line 7"}
    for name in (*members, *error):
        assert re.search(rf"^\s+{name}(?: =|,)", text, re.MULTILINE), name
    read = declaration.read(json.dumps({**members, "error": error}).encode())
    assert (read.reason, read.error) == ("application:exception", error)
    assert PAGE.count("dlx-router.declared") > 3
