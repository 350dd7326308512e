"""Whatever is sent to the HTTP port: the router lives, probes are answered, letters pass, nothing secret is told.

Raw sockets, because a client library would not send most of it. DLX_ROUTER_FUZZ_SECONDS=n goes on for so long (each of
the two scenes); DLX_ROUTER_FUZZ_SEED=n repeats a round that failed. Paths that fit their description, and
whether the answers do, are schemathesis' part: tests/index/test_api.py.
"""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.budget import SECONDS, rounds
from tests.fuzz.requests import connections
from tests.support.bulk import dying_queue
from tests.support.client import Client
from tests.support.router import Router
from tests.support.slow import LIMIT_S, probed

EXAMPLES: Final = 40
SILENCE_S: Final = 0.25
GROWTH_BYTES: Final = 100 << 20
DOCUMENTED: Final = {503}  # not here or not now
POLICY: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1, journal: {body: final}}
"""
TROUBLE: Final = re.compile(r"Traceback|api\.failed|Exception|\"level\": \"error\"")


@dataclass
class Scene:
    """One router, and what must never be seen in an answer."""

    router: Router
    amqp: Client
    hidden: list[bytes]
    tokens: list[str]

    def send(self, given: list[list[bytes]]) -> None:
        """Each on a connection of its own, at once; what is answered is looked at."""
        before = len(self.router.output)
        for answer in asyncio.run(_all(self.router.port, given)):
            self._judge(answer)
        output = self.router.output[before:]
        assert not TROUBLE.search(output), output[-6000:]

    def _judge(self, answer: bytes) -> None:
        assert not any(secret in answer for secret in self.hidden), answer[:2000]
        assert b"Traceback" not in answer
        if answer:
            status_line = re.match(rb"HTTP/1\.1 ([1-5][0-9]{2}) ", answer)
            assert status_line is not None, answer[:200]
            status = int(status_line[1])
            assert status < 500 or status in DOCUMENTED, answer[:2000]

    def check(self, rss: int) -> None:
        """It lives, answers, has logged no fault, is no larger, and a letter passes."""
        assert self.router.running, self.router.output[-4000:]
        status, took = asyncio.run(probed(self.router.port, "/livez"))
        assert (status, took < LIMIT_S) == (200, True), took
        assert psutil.Process(self.router.pid).memory_info().rss - rss < GROWTH_BYTES
        self.letter_passes()

    def letter_passes(self) -> None:
        self.amqp.publish("letter", key="fuzzed")
        self.amqp.take("DLQ.fuzzed")


async def _all(port: int, given: list[list[bytes]]) -> list[bytes]:
    return await asyncio.gather(*(_answer(port, parts) for parts in given))


async def _answer(port: int, parts: list[bytes]) -> bytes:
    """What came back until the router closed, or was silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    answer = bytearray()
    with contextlib.suppress(OSError, TimeoutError):
        for part in parts:
            writer.write(part)
            await asyncio.wait_for(writer.drain(), SILENCE_S)
        while piece := await asyncio.wait_for(reader.read(1 << 16), SILENCE_S):
            answer += piece
    writer.transport.abort()
    return bytes(answer)


@pytest.fixture(params=["local", "tokens"])
def scene(request: pytest.FixtureRequest, start_router: Callable[..., Router], amqp: Client, tmp_path: Path) -> Scene:
    tokens = [secrets.token_hex(16) for _ in range(20)] if request.param == "tokens" else []
    key = secrets.token_hex(32)
    (tmp_path / "key").write_text(key, encoding="ascii")
    env = {
        "PROVENANCE_KEY_FILE": str(tmp_path / "key"),
        "INDEX_PATH": str(tmp_path / "index.sqlite"),
        "LOG_FORMAT": "json",
    }
    if tokens:
        lines = [f"  - {{name: t{n}, role: admin, token-sha256: {_digest(token)}}}" for n, token in enumerate(tokens)]
        (tmp_path / "tokens.yaml").write_text("\n".join(["tokens:", *lines]), encoding="ascii")
        env |= {"API_TOKENS_FILE": str(tmp_path / "tokens.yaml"), "HTTP_HOST": "0.0.0.0"}
    router = start_router(POLICY, **env)
    dying_queue(amqp, "fuzzed")
    amqp.queue("DLQ.fuzzed")
    hidden = [key.encode(), b"guest:guest@", *map(str.encode, tokens)]
    return Scene(router, amqp, hidden, tokens)


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.timeout(60 + 2 * SECONDS)
@pytest.mark.usefixtures("newest")
def test_nothing_that_is_sent_hurts(scene: Scene) -> None:
    scene.letter_passes()
    scene.send([[b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"]])  # what is loaded once, is loaded
    rss, until, sent = psutil.Process(scene.router.pid).memory_info().rss, time.monotonic() + SECONDS, 0
    for number in rounds(until):
        sent += _round(scene, number, until)
        scene.check(rss)
    assert sent > SECONDS


def _round(scene: Scene, number: int, until: float) -> int:
    sent = 0

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(connections(scene.tokens))
    def send(given: list[list[bytes]]) -> None:
        nonlocal sent
        if time.monotonic() < until or not sent:
            sent += len(given)
            scene.send(given)

    send()
    return sent
