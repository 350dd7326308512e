"""Answers of a router that may be some seconds old, so that people who look at the same thing ask it once.

Kept by router, account and question: nobody is shown what the router did not answer to the same account. Errors are
never kept, and a change that a person makes here forgets what its router said before.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

MOST: Final = 128
Answer = dict[str, Any]
Key = tuple[str, str, str]


class Remembered:
    """At most MOST answers, those that were kept first leave first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: OrderedDict[Key, tuple[float, Answer]] = OrderedDict()
        self._changes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self, router: str, account: str, question: str, within_s: float, answer: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """What was answered within these seconds, or what `answer` says now. Raises as that does."""
        key, now = (router, account, question), self._now()
        at, known = self._kept.get(key, (0.0, None))
        if known is not None and now - at < within_s:
            return known
        changes = self._changes.get(router, 0)
        known = await answer()
        if changes == self._changes.get(router, 0):  # else it may say how things were before the change
            self._kept.pop(key, None)
            self._kept[key] = (now, known)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return known

    def forget(self, router: str) -> None:
        """A change was asked for: nothing that this router said before it is shown any more."""
        self._changes[router] = self._changes.get(router, 0) + 1
        for key in [key for key in self._kept if key[0] == router]:
            del self._kept[key]
