"""The daemon: the router, its API and its console in one event loop."""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp

from dlx_router.admin.api.app import create_app
from dlx_router.admin.api.context import Context
from dlx_router.admin.server import AdminError, AdminServer
from dlx_router.config.api_access.allowed_hosts import Hosts, is_loopback
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.single_sign_on import SingleSignOn
from dlx_router.config.api_access.tokens import Tokens, TokensError
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.console.app import create_app as console_app
from dlx_router.console.router_api import InProcess, RouterApi
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
        return _run_loop(_serve(settings, loaded, observe=observe))
    except (TokensError, AdminError, TracesError, KeyFileError) as error:
        logs.log.error(_REFUSALS[type(error)], error=str(error), fate="nothing was consumed")
        return REFUSED


def _run_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run it on uvloop where that is to be had."""
    run: Callable[[Coroutine[Any, Any, int]], int] = asyncio.run
    with contextlib.suppress(ImportError):  # optional: not there on every platform
        import uvloop  # noqa: PLC0415 - as above

        run = uvloop.run
    return run(work)


def _spare_the_collector() -> None:
    """Letters come and go without cycles; at the default thresholds looking for some takes a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _serve(settings: Settings, loaded: LoadedPolicies, *, observe: bool) -> int:
    app = App(settings, loaded, observe=observe)
    hosts = Hosts(settings.http_host, settings.http_allowed_hosts)
    passes = Passes(session_key(settings))
    tokens = Tokens(Path(settings.api_tokens_file)) if settings.api_tokens_file else None
    for problem in settings.open_api():
        app.readiness.note("no tokens", problem)
    api = create_app(_context(settings, app, hosts, tokens, passes))
    server = AdminServer(settings.http_host, settings.http_port, app.metrics, app.readiness, api, hosts=hosts)
    if settings.console != "off":
        server.console = _console(settings, server, hosts, passes)
    await server.start()
    app.http_port = server.port
    watching = None
    if tokens is not None:
        watching = asyncio.create_task(app.background.keep(_KEY, lambda: _watched(tokens, app.readiness)))
    try:
        return await app.run()
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await server.stop()


def _context(settings: Settings, app: App, hosts: Hosts, tokens: Tokens | None, passes: Passes) -> Context:
    return Context(
        router_id=app.router_id,
        names=settings.names,
        attendants=app.attendants,
        index=app.index,
        tokens=tokens,
        passes=passes,
        is_loopback=is_loopback(settings.http_host),
        hosts=hosts,
        depths=app.depths,
        importer=app.importer,
        management=app.management,
    )


def _console(settings: Settings, server: AdminServer, hosts: Hosts, passes: Passes) -> ASGIApp:
    """The pages of this router, over its own API without a socket between."""
    return console_app(
        [RouterApi("router", "http://127.0.0.1", InProcess(server))],
        hosts,
        is_loopback=is_loopback(settings.http_host),
        secure=settings.console == "https",
        proxies=TrustedProxies(settings.http_trusted_proxies, settings.sso_proxies),
        sso=SingleSignOn(settings.sso_proxies, settings.sso_roles, settings.sso_headers, settings.sso_group_separator),
        passes=passes,
    )


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
