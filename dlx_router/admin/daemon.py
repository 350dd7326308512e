"""The daemon: the router and its admin endpoint in one event loop."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, Final

from dlx_router.admin import tokenswatch
from dlx_router.admin.api_door import Door
from dlx_router.admin.console_door import ConsoleDoor
from dlx_router.admin.server import AdminError, AdminServer
from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.tokens import Tokens, TokensError
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.service.app import App
from dlx_router.service.vhost.signing_key import KeyFileError
from dlx_router.telemetry import logs
from dlx_router.telemetry.traces import TracesError

REFUSED: Final = 2


def run(settings: Settings, loaded: LoadedPolicies, *, observe: bool = False) -> int:
    """Run until a signal; the exit code as docs/architecture.md ("Frozen names") says."""
    logs.configure(settings.log_format, settings.log_level)
    logs.take_faults()
    _spare_the_collector()
    try:
        return _loop()(_serve(settings, loaded, observe=observe))
    except TokensError as error:
        logs.log.error("tokens.refused", error=str(error), fate="nothing was consumed")
        return REFUSED
    except AdminError as error:
        logs.log.error("admin.refused", error=str(error), fate="nothing was consumed")
        return REFUSED
    except TracesError as error:
        logs.log.error("traces.refused", error=str(error), fate="nothing was consumed")
        return REFUSED
    except KeyFileError as error:
        logs.log.error("key.refused", error=str(error), fate="nothing was consumed")
        return REFUSED


async def _tokens(app: App, tokens: Tokens) -> None:
    await app.background.keep("tokens", lambda: tokenswatch.watch(tokens, app.readiness))


def _loop() -> Callable[[Coroutine[Any, Any, int]], int]:
    try:
        import uvloop  # noqa: PLC0415 - optional: not there on every platform
    except ImportError:
        return asyncio.run
    run: Callable[[Coroutine[Any, Any, int]], int] = uvloop.run
    return run


def _spare_the_collector() -> None:
    """Letters come and go without cycles; at the default thresholds looking for some takes a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _serve(settings: Settings, loaded: LoadedPolicies, *, observe: bool) -> int:
    app = App(settings, loaded, observe=observe)
    hosts = Hosts(settings.http_host, settings.http_allowed_hosts)
    door = Door(settings, app, hosts)
    console = ConsoleDoor(settings) if settings.console != "off" else None
    at = (settings.http_host, settings.http_port)
    server = AdminServer(*at, app.metrics, app.readiness, door, hosts=hosts, console=console)
    await server.start()
    if console is not None:
        console.port = server.port
    watching = None if door.tokens is None else asyncio.create_task(_tokens(app, door.tokens))
    try:
        return await app.run()
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await server.stop()
        if console is not None:
            await console.stop()
