"""What a session believes of its own queues where nobody answers in time: what was seen, never against harm."""

import asyncio
from typing import Any, cast

import pytest

from dlx_router.broker import control
from dlx_router.broker.management import ManagementError
from dlx_router.core.names import Names
from dlx_router.service.vhost.own_queues import OwnQueues
from dlx_router.service.vhost.session import Trouble
from dlx_router.telemetry.readiness import Readiness


class Api:
    """A management API whose answers are chosen, and which may hang before the second of them."""

    def __init__(self) -> None:
        self.disagreeing: set[str] = set()
        self.problems: list[str] = []
        self.hangs_s = 0.0
        self.fails = False

    async def check_own_queues(self, *_given: object) -> list[str]:
        if self.fails:
            raise ManagementError("away")
        return self.problems

    async def check_own_exchanges(self, *_given: object) -> list[str]:
        return []

    async def standing(self, *_given: object) -> Any:
        await asyncio.sleep(self.hangs_s)  # as an API that hangs
        raise ManagementError("away")


class Topology:
    """Nobody tells by AMQP either."""

    async def standing(self) -> None:
        return None


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(control, "CONFIRMS_S", 0.05)
    return Api()


def _checked(api: Api) -> OwnQueues:
    return OwnQueues(cast("Any", api), Names("dlx-router"), Readiness())


async def _begin(checks: OwnQueues) -> frozenset[str]:
    return await checks.begin("/", cast("Any", Topology()))


async def test_harm_that_was_just_seen_is_not_begun_with_though_the_rest_hangs(api: Api) -> None:
    checks = _checked(api)
    checks._verified["/"] = frozenset({"inbox"})
    api.problems, api.hangs_s = ["policy everything: message-ttl"], 0.5
    with pytest.raises(Trouble, match="message-ttl"):
        await _begin(checks)


async def test_what_was_verified_is_believed_while_the_answer_hangs(api: Api) -> None:
    checks = _checked(api)
    checks._verified["/"] = frozenset({"inbox"})
    api.hangs_s = 3600
    assert await asyncio.wait_for(_begin(checks), 60) == {"inbox"}
