"""The types of queues, for policies with `apply-to`: the archive does not tell them, the broker does, as of today."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from dlx_router.broker.management import Management, ManagementError
from dlx_router.cli import output
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.service.vhost.connect import management
from dlx_router.spark.backtest.replay import Files, Judge, QueueTypes, judge_of

UNKNOWN = "not judged, because the queue's type is not known (DLX_ROUTER_MANAGEMENT_URL names who tells it)"


def judge(files: Files, prefix: str, vhosts: Callable[[], Sequence[str]]) -> tuple[Judge, QueueTypes]:
    """The judge of events of these vhosts, and the types that it was given.

    None where no policy asks for types (then `vhosts` is not called), or nobody can be asked.
    """
    alone = judge_of(files, prefix)
    if not alone.asks_types:
        return alone, ()
    types = known_types(vhosts())
    return judge_of(files, prefix, types), types


def known_types(vhosts: Sequence[str]) -> QueueTypes:
    """What the management API of the settings says; what went wrong is said on standard error."""
    try:
        api = management(Settings.load({}))
        return asyncio.run(_asked(api, vhosts)) if api is not None else ()
    except SettingsError as error:
        output.warn(f"the types of queues are not known: {error}")
        return ()


async def _asked(api: Management, vhosts: Iterable[str]) -> QueueTypes:
    rows: list[tuple[str, str, str]] = []
    try:
        for vhost in vhosts:
            try:
                types = await api.queue_types(vhost)
            except ManagementError as error:
                message = f"vhost {vhost!r}: the types of queues are not known: {error}"
                output.warn(message)
            else:
                rows += [(vhost, queue, queue_type) for queue, queue_type in sorted(types.items())]
    finally:
        await api.close()
    return tuple(rows)


def warn(lines: Iterable[str]) -> None:
    """Say on standard error which policies were not judged."""
    for line in lines:
        output.warn(f"{UNKNOWN}: {line}")
