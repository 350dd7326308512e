"""Answers that are some seconds old: none older than asked for, none of another account, none from before a change."""

import asyncio

import pytest

from dlx_router.console.remembered import MOST, Remembered
from dlx_router.console.router_api import ApiError

pytestmark = pytest.mark.pure


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Router:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> dict[str, int]:
        self.asked += 1
        return {"asked": self.asked}


def test_an_answer_is_shown_again_for_so_long_and_no_longer() -> None:
    clock, router = Clock(), Router()
    remembered = Remembered(clock)

    async def at(moment: float) -> int:
        clock.now = moment
        return int((await remembered.get("a", "ann", "vhosts", 10.0, router))["asked"])

    moments = (1.0, 10.9, 11.0, 20.9, 21.0)
    assert [asyncio.run(at(moment)) for moment in moments] == [1, 1, 2, 2, 3]


def test_another_account_router_or_question_is_asked_for_itself() -> None:
    router = Router()
    remembered = Remembered(Clock())
    for key in (("a", "ann", "vhosts"), ("b", "ann", "vhosts"), ("a", "bob", "vhosts"), ("a", "ann", "searches")):
        asyncio.run(remembered.get(*key, 10.0, router))
    assert router.asked == 4


def test_a_change_forgets_what_its_router_said_and_no_other() -> None:
    router = Router()
    remembered = Remembered(Clock())
    for name in ("a", "b"):
        asyncio.run(remembered.get(name, "ann", "vhosts", 10.0, router))
    remembered.forget("a")
    assert asyncio.run(remembered.get("b", "ann", "vhosts", 10.0, router)) == {"asked": 2}
    assert asyncio.run(remembered.get("a", "ann", "vhosts", 10.0, router)) == {"asked": 3}


def test_an_answer_that_was_on_its_way_while_something_changed_is_not_kept() -> None:
    remembered = Remembered(Clock())

    async def overtaken() -> dict[str, str]:
        remembered.forget("a")
        return {"says": "how it was"}

    async def later() -> dict[str, str]:
        return {"says": "how it is"}

    assert asyncio.run(remembered.get("a", "ann", "searches", 10.0, overtaken)) == {"says": "how it was"}
    assert asyncio.run(remembered.get("a", "ann", "searches", 10.0, later)) == {"says": "how it is"}


def test_an_error_is_not_kept() -> None:
    remembered, router = Remembered(Clock()), Router()

    async def refused() -> dict[str, str]:
        raise ApiError(503, "not now")

    with pytest.raises(ApiError):
        asyncio.run(remembered.get("a", "ann", "vhosts", 10.0, refused))
    assert asyncio.run(remembered.get("a", "ann", "vhosts", 10.0, router)) == {"asked": 1}


def test_so_many_are_kept_and_no_more() -> None:
    remembered = Remembered(Clock())
    for number in range(MOST + 10):
        asyncio.run(remembered.get("a", f"account {number}", "vhosts", 10.0, Router()))
    assert len(remembered) == MOST
