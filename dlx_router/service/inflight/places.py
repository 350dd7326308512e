"""Places: where the deliveries of each consumer come from, as long as anybody may ask."""

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from dlx_router.broker.consumer import Consumer
from dlx_router.service.inflight.decoder import Place


class Places(dict[Consumer, Place]):
    """By consumer. One that is gone is kept as long as a letter of its own is on its way, and then forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: WeakKeyDictionary[Consumer, Place] = WeakKeyDictionary()

    def __missing__(self, consumer: Consumer) -> Place:
        return self._gone[consumer]

    def change(self, consumer: Consumer, **changes: Any) -> None:  # noqa: ANN401 - fields of Place
        """This is known of it from now on; what is gone already stays as it was."""
        if consumer in self:
            self[consumer] = replace(self[consumer], **changes)

    def leave(self, consumer: Consumer) -> None:
        """Nothing more comes by it. Safe to repeat."""
        place = self.pop(consumer, None)
        if place is not None:
            self._gone[consumer] = place
