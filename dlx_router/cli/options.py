"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Policies = Annotated[Path, typer.Option("--policies", envvar="DLX_ROUTER_POLICIES", help="Folder of the policy files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Url = Annotated[str | None, typer.Option("--api-url", help="Address of the router; default: DLX_ROUTER_API_URL.")]
Vhost = Annotated[str | None, typer.Option(help="Only of this vhost.")]
Queue = Annotated[str | None, typer.Option(help="Only letters that failed in this queue.")]
Limit = Annotated[int, typer.Option(min=0, help="At most so many; 0: all.")]
