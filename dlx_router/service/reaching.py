"""How the broker is reached, read from the settings each time, so that a renewed secret file is used."""

from collections.abc import Sequence

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.administration import Administration
from dlx_router.broker.management import ManagementError
from dlx_router.config.settings import Settings, SettingsError
from dlx_router.service.vhost import Addresses


def addresses(settings: Settings) -> Addresses:
    """Reads the broker's address anew at each connect, so that a renewed secret file is used."""

    def read(vhost: str) -> tuple[Sequence[Host], Login, Tls | None]:
        found = settings.broker_address()
        tls = _tls(settings) if found.tls else None
        hosts = [Host(name, port) for name, port in found.hosts]
        return hosts, Login(found.user, found.password.get_secret_value(), vhost), tls

    return read


def management(settings: Settings) -> Administration | None:
    """The client of the management API, where there is one; it reads its URL anew at each request."""

    def read() -> str:
        try:
            return settings.management_credentials()
        except SettingsError as error:  # a file may be gone for a moment while a secret is renewed
            raise ManagementError(str(error)) from None

    return Administration(read, _tls(settings)) if settings.has_management() else None


def _tls(settings: Settings) -> Tls:
    return Tls(settings.tls_ca, settings.tls_cert, settings.tls_key, settings.tls_server_name)
