"""The daemon: the router and its admin endpoint in one event loop."""

import asyncio
import contextlib
import gc

from dlx_router.admin.server import AdminServer
from dlx_router.config.policies import LoadedPolicies
from dlx_router.config.settings import Settings
from dlx_router.service.app import App
from dlx_router.telemetry import logs


def run(settings: Settings, loaded: LoadedPolicies) -> int:
    """Run until a signal; the exit code as INTERFACES says."""
    logs.configure(settings.log_format, settings.log_level)
    _spare_the_collector()
    try:
        import uvloop  # noqa: PLC0415 - optional: not there on every platform
    except ImportError:
        return asyncio.run(_serve(settings, loaded))
    return uvloop.run(_serve(settings, loaded))


def _spare_the_collector() -> None:
    """Letters come and go without cycles; the default thresholds look for some 60 times a second, for a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _serve(settings: Settings, loaded: LoadedPolicies) -> int:
    app = App(settings, loaded)
    server = AdminServer(settings.http_host, settings.http_port, app.metrics, app.readiness)
    serving = asyncio.create_task(server.serve())
    try:
        return await app.run()
    finally:
        server.stop()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(serving, 2.0)
