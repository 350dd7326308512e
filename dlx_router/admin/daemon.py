"""The daemon: the router and its admin endpoint in one event loop."""

import asyncio
import gc
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dlx_router.admin import event_loop
from dlx_router.admin.api_door import Door
from dlx_router.admin.console_door import ConsoleDoor
from dlx_router.admin.server import AdminError, AdminServer
from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.tokens import Tokens, TokensError
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.service.app import App
from dlx_router.service.vhost.signing_key import KeyFileError, from_file
from dlx_router.telemetry import logs
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.traces import TracesError

REFUSED: Final = 2
EVERY_S: Final = 2.0  # the tokens file is looked at
_KEY: Final = "tokens"
_FATE: Final = "the tokens of before stay valid, those that were taken out too; mend the file"
_REFUSALS: Final = {
    TokensError: "tokens.refused", AdminError: "admin.refused", TracesError: "traces.refused",
    KeyFileError: "key.refused",
}  # fmt: skip


def run(settings: Settings, loaded: LoadedPolicies, *, observe: bool = False) -> int:
    """Run until a signal; the exit code as docs/architecture.md ("Frozen names") says."""
    logs.configure(settings.log_format, settings.log_level)
    logs.take_faults()
    _spare_the_collector()
    try:
        return event_loop.run(_serve(settings, loaded, observe=observe))
    except (TokensError, AdminError, TracesError, KeyFileError) as error:
        logs.log.error(_REFUSALS[type(error)], error=str(error), fate="nothing was consumed")
        return REFUSED


def _spare_the_collector() -> None:
    """Letters come and go without cycles; at the default thresholds looking for some takes a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _serve(settings: Settings, loaded: LoadedPolicies, *, observe: bool) -> int:
    app = App(settings, loaded, observe=observe)
    hosts = Hosts(settings.http_host, settings.http_allowed_hosts)
    passes = Passes(session_key(settings))
    door = Door(settings, app, hosts, passes)
    for problem in settings.open_api():
        app.readiness.note("no tokens", problem)
    console = ConsoleDoor(settings, passes) if settings.console != "off" else None
    at = (settings.http_host, settings.http_port)
    server = AdminServer(*at, app.metrics, app.readiness, door, hosts=hosts, console=console)
    await server.start()
    app.http_port = server.port
    if console is not None:
        console.port = server.port
    watching = None
    if (tokens := door.tokens) is not None:
        watching = asyncio.create_task(app.background.keep(_KEY, lambda: _watched(tokens, app.readiness)))
    try:
        return await app.run()
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await server.stop()
        if console is not None:
            await console.stop()


def session_key(settings: Settings) -> bytes | None:
    """What seals sessions of the console; None: replicas share nothing. KeyFileError."""
    named = settings.console_secret_file or settings.provenance_key_file
    if named is None:
        return None
    variable = "CONSOLE_SECRET_FILE" if settings.console_secret_file else "PROVENANCE_KEY_FILE"
    return blake2b(from_file(Path(named), variable), digest_size=32, person=b"dlx-session").digest()


async def _watched(tokens: Tokens, readiness: Readiness) -> None:
    """A file that breaks while the router runs is told at once, and not by the first who asks.

    The tokens that were valid last stay so: whoever takes one back by a file that cannot be read has not taken it back,
    and that is what log, readiness and status say.
    """
    once = Once()
    while True:
        trouble = await asyncio.to_thread(tokens.look)
        if trouble:
            readiness.note(_KEY, f"{trouble}; {_FATE}")
            once.warn(_KEY, "tokens.broken", error=trouble, fate=_FATE)
        else:
            readiness.drop_note(_KEY)
            once.healed(_KEY, "tokens.mended")
        await asyncio.sleep(EVERY_S)
