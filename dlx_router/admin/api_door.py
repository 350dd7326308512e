"""The door to the API: the framework behind it is loaded by the first request, in a thread, and not before."""

import asyncio
from pathlib import Path
from typing import Any

from dlx_router.admin.server import Message, Receive, Send
from dlx_router.config.api_access.allowed_hosts import Hosts, is_loopback
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.tokens import Tokens
from dlx_router.config.environment.settings import Settings
from dlx_router.service.app import App


class Door:
    """An ASGI app. Raises TokensError where API_TOKENS_FILE cannot be used: at the start, not at the first request."""

    def __init__(self, settings: Settings, router: App, hosts: Hosts, passes: Passes) -> None:
        self._passes = passes
        self._router, self._names = router, settings.names
        self._tokens = Tokens(Path(settings.api_tokens_file)) if settings.api_tokens_file else None
        self._is_loopback, self._hosts = is_loopback(settings.http_host), hosts
        self._loading = asyncio.Lock()
        self._app: Any = None

    @property
    def tokens(self) -> Tokens | None:
        """Those of API_TOKENS_FILE."""
        return self._tokens

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._loading:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._load)
        await self._app(scope, receive, send)

    def _load(self) -> Any:  # noqa: ANN401 - an ASGI app, as frameworks type it
        from dlx_router.admin.api import (  # noqa: PLC0415 - see the module
            comments,
            groups,
            leases,
            letters,
            policies,
            queues,
            sessions,
            tasks,
        )
        from dlx_router.admin.api.app import create_app  # noqa: PLC0415 - see the module
        from dlx_router.admin.api.context import Context  # noqa: PLC0415 - see the module

        context = Context(
            router_id=self._router.router_id,
            names=self._names,
            attendants=self._router.attendants,
            index=self._router.index,
            tokens=self._tokens,
            passes=self._passes,
            is_loopback=self._is_loopback,
            hosts=self._hosts,
            depths=self._router.depths,
            importer=self._router.importer,
            management=self._router.management,
        )
        paths = (queues, groups, letters, comments, policies, tasks, leases, sessions)
        return create_app(context, [module.router for module in paths])
