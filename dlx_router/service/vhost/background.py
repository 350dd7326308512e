"""Background: work beside the letters' way, which must neither end them by an error of its own nor end unseen.

The outermost loop of each such task: what escapes from it is an error of ours. It is logged, counted
and noted at /readyz, and the work is begun anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
STEADY_S: Final = 120.0  # then the note goes


class Background:
    """Keeps tasks going; one place that tells of all of them."""

    def __init__(self, metrics: Metrics, readiness: Readiness) -> None:
        self._metrics, self._readiness = metrics, readiness

    async def keep(
        self,
        task: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        passes: tuple[type[Exception], ...] = (),
        where: str = "",
    ) -> None:
        """Until the work ends by itself, is cancelled or raises what `passes`; after any other error once more."""
        self._metrics.background_failures[task] += 0
        pause = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            healing = asyncio.get_running_loop().call_later(STEADY_S, self._readiness.drop_note, _key(task, where))
            try:
                await work()
            except passes:
                raise
            except Exception as error:  # noqa: BLE001 - the outermost loop of this task
                pause = FIRST_PAUSE_S if time.monotonic() - began > STEADY_S else pause
                self._failed(task, where, error, pause)
            else:
                return
            finally:
                healing.cancel()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _failed(self, task: str, where: str, error: Exception, pause: float) -> None:
        self._metrics.background_failures[task] += 1
        fate = f"letters go on; it is begun again in {pause:g} s"
        log.error("background.failed", task=task, vhost=where or None, error=repr(error), exc_info=error, fate=fate)
        subject = f"task {task!r}" + (f" of vhost {where!r}" if where else "")
        text = (
            f"{subject} ended by an error of its own ({error!r}) and is begun again; the log has more: please report it"
        )
        self._readiness.note(_key(task, where), text)


def _key(task: str, where: str) -> str:
    return f"background {task} {where}"
