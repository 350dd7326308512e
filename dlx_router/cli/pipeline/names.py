"""What the router's names begin with here."""

import os


def prefix() -> str:
    """As the environment says."""
    return os.environ.get("DLX_ROUTER_PREFIX") or "dlx-router"
