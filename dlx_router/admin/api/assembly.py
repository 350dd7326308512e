"""Which routers the API has. Imported at the first request only: letters should not wait for what nobody asks."""

from starlette.types import ASGIApp

from dlx_router.admin.api import groups, letters, policies, queues, tasks
from dlx_router.admin.api.app import create_app
from dlx_router.admin.api.context import Context


def api(context: Context) -> ASGIApp:
    """The whole API of a router."""
    return create_app(context, [queues.router, groups.router, letters.router, policies.router, tasks.router])
