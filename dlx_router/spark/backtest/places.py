"""What policies say of places: of each (vhost, failed queue, reason) that events are about. No Spark in here."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dlx_router.config.language.value_text import left_out_text
from dlx_router.core.recovered import longest_wait_ms, window_ms
from dlx_router.spark.backtest.replay import Judge

Place = tuple[str, str, str | None]  # vhost, failed queue, reason; it has none where nobody knows why its letters died
_SHOWN: Final = 4


def windows(places: Iterable[Place], judge: Judge) -> list[tuple[str, str, str | None, int]]:
    """How long a letter must be silent there to be recovered, ms: max(1 h, 2 × the longest wait of its policies)."""
    return [(*place, window_ms(longest_wait_ms(judge.effective(*place)))) for place in places]


def left_out(queues: Iterable[tuple[str, str]], judge: Judge) -> tuple[str, ...]:
    """A line for each policy for one type that was not judged for these (vhost, queue): nobody told their type."""
    if not judge.asks_types:
        return ()
    by_policy: dict[str, list[str]] = {}
    for vhost, queue in queues:
        for policy in judge.left_out(vhost, queue):
            source = replace(policy.source, file=Path(policy.source.file).name)  # read from a folder of the moment
            by_policy.setdefault(left_out_text(replace(policy, source=source)), []).append(queue)
    return tuple(f"{policy}: {_shortened(names)}" for policy, names in by_policy.items())


def _shortened(queues: list[str]) -> str:
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return f"{', '.join(queues[:_SHOWN])}{more}"
