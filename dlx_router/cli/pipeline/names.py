"""What the router's settings say here: what its names begin with, and how its broker is reached."""

import os
from typing import Final

_TLS: Final = {
    "tlsCa": "TLS_CA", "tlsCert": "TLS_CERT", "tlsKey": "TLS_KEY", "tlsServerName": "TLS_SERVER_NAME",
}  # fmt: skip


def prefix() -> str:
    """As the environment says."""
    return os.environ.get("DLX_ROUTER_PREFIX") or "dlx-router"


def tls_options() -> dict[str, str]:
    """The options of the source that the router's own DLX_ROUTER_TLS_* say; what is not set is left out."""
    values = {option: os.environ.get(f"DLX_ROUTER_{name}", "") for option, name in _TLS.items()}
    return {option: value for option, value in values.items() if value}
