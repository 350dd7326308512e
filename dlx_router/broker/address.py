"""Where a broker is, and who we say and prove that we are. The password never appears in a repr."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dlx_router import __version__


@dataclass(frozen=True, slots=True)
class Host:
    """One node of the broker."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Login:
    """User, password and vhost of one link."""

    user: str
    password: str = field(repr=False)
    vhost: str = "/"


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS as the settings say; `server_name` None checks the host that was dialled."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = field(default=None, repr=False)
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """A context that verifies the peer; built anew at each connect, so that renewed certificates are read."""
        with _named(f"TLS_CA {self.ca}"):
            context = ssl.create_default_context(cafile=self.ca)
        if self.cert:
            with _named(f"TLS_CERT {self.cert}" + (f" with TLS_KEY {self.key}" if self.key else "")):
                context.load_cert_chain(self.cert, self.key)
        return context


@contextmanager
def _named(files: str) -> Iterator[None]:
    """Python does not say which file it could not use."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"{files}: {error.strerror or error}; name PEM files that fit together") from None


def client_properties(name: str) -> dict[str, Any]:
    """What we say about us in Connection.StartOk; `name` is seen in `rabbitmqctl list_connections`."""
    return {
        "product": "dlx-router",
        "version": __version__,
        "connection_name": name,
        "platform": "Python",
        "capabilities": {
            "publisher_confirms": True,
            "consumer_cancel_notify": True,
            "basic.nack": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "exchange_exchange_bindings": True,
        },
    }
