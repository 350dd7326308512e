"""The daemon: the router and its admin endpoint in one event loop."""

import asyncio
import contextlib

from dlx_router.admin.server import AdminServer
from dlx_router.config.policies import LoadedPolicies
from dlx_router.config.settings import Settings
from dlx_router.service.app import App
from dlx_router.telemetry import logs


def run(settings: Settings, loaded: LoadedPolicies) -> int:
    """Run until a signal; the exit code as INTERFACES says."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        import uvloop  # noqa: PLC0415 - optional: not there on every platform
    except ImportError:
        return asyncio.run(_serve(settings, loaded))
    return uvloop.run(_serve(settings, loaded))


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
