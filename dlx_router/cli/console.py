"""`dlx-router console`: the web pages over one router or several, as a process of its own."""

from typing import Annotated

import typer

from dlx_router.config.api_access.allowed_hosts import split
from dlx_router.config.api_access.trusted_proxies import networks
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.console.router_api import named
from dlx_router.console.serving import ConsoleError, serve
from dlx_router.telemetry import logs


def console(
    *,
    router: Annotated[
        list[str] | None,
        typer.Option(
            "--router", help="Address of a router, NAME=URL to call it so; repeatable. Default: DLX_ROUTER_API_URL."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where it listens; off loopback routers must ask for tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0: any free one.")] = 9718,
    allowed_hosts: Annotated[
        str, typer.Option(help="Names by which browsers ask for it, a,b; those of a proxy, say.")
    ] = "",
    trusted_proxies: Annotated[
        str, typer.Option(help="Addresses a,b of proxies whose X-Forwarded-For says where people are.")
    ] = "",
    https: Annotated[
        bool, typer.Option("--https", help="People come by https, through a proxy: cookies go by nothing else.")
    ] = False,
) -> None:
    """Serve web pages: what dies and why, letters, redrives. It asks the routers' API, and logs in with its tokens."""
    settings = Settings.load({})
    try:
        routers = [*map(named, router or [settings.api_url])]
        split(allowed_hosts)
        if len({name for name, _ in routers}) < len(routers):
            raise SettingsError("--router: two have the same name; write NAME=URL")
        try:
            networks(trusted_proxies)
        except ValueError as error:
            raise SettingsError(f"--trusted-proxies: {error}") from None
        logs.configure(settings.log_format, settings.log_level)
        serve(routers, host, port, names=allowed_hosts, secure=https, proxies=trusted_proxies)
    except (ValueError, ConsoleError) as error:
        raise SettingsError(str(error)) from None
