"""The locks that keep the making and the deleting of a dead-letter queue apart: one at a time, and none left behind."""

import asyncio
import gc

from tests.support.worker import Session


async def test_locks_of_names_that_letters_brought_do_not_accumulate() -> None:
    provision = Session({}).provision
    inside: dict[str, int] = {}

    async def one(name: str) -> None:
        async with provision._turn(name):
            inside[name] = inside.get(name, 0) + 1
            assert inside[name] == 1, "one at a time"
            await asyncio.sleep(0)
            inside[name] -= 1

    for start in range(0, 5000, 500):
        await asyncio.gather(*(one(f"DLQ.{number}") for number in range(start, start + 500) for _ in range(3)))
    gc.collect()
    assert len(provision._turns) == 0
