"""Which event loop a process of ours runs on: uvloop where it is to be had."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, on a loop of its own, as `asyncio.run`."""
    try:
        import uvloop  # noqa: PLC0415 - optional: not there on every platform
    except ImportError:
        return asyncio.run(work)
    result: Result = uvloop.run(work)
    return result
