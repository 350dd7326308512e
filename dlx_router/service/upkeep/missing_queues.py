"""Queues that do not exist and are looked for: seldom, once that is sure, because each closes a channel."""

from collections.abc import Container, Iterable
from typing import Final

SURE: Final = 4  # looks in a row that missed it: longer than an event may come before its letter
RESTS: Final = 11  # looks that leave it out, from then on and after each further one


class MissingQueues:
    """By vhost. Every queue is looked for at once, and so is one that was missing in less than SURE looks in a row."""

    def __init__(self) -> None:
        self._looks: dict[str, dict[str, int]] = {}  # since it was missed first; those too that left it out

    def due(self, vhost: str, queues: Iterable[str]) -> set[str]:
        """Which of these to look for now; others are forgotten."""
        before = self._looks.get(vhost, {})
        looks = self._looks[vhost] = {queue: before[queue] for queue in queues if queue in before}
        resting = {queue for queue, count in looks.items() if count >= SURE and (count - SURE) % (RESTS + 1) < RESTS}
        looks |= {queue: looks[queue] + 1 for queue in resting}
        return {*queues} - resting

    def note(self, vhost: str, looked: Iterable[str], missing: Container[str]) -> None:
        """What a look has shown."""
        looks = self._looks.setdefault(vhost, {})
        for queue in looked:
            if queue in missing:
                looks[queue] = looks.get(queue, 0) + 1
            else:
                looks.pop(queue, None)

    def forget(self, vhost: str) -> None:
        """Of this vhost nothing is known; "" of all."""
        for known in [vhost] if vhost else [*self._looks]:
            self._looks.pop(known, None)
