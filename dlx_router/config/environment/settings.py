"""Settings: every `DLX_ROUTER_*` variable, its type, default and meaning, once. `run --help` is made from this.

Secrets are SecretStr and never part of a repr or an error. Each can come from a file instead (`…_FILE`), which is read
anew whenever it is asked for, so that a renewed secret is used at the next connect. See
docs/architecture.md ("Frozen names").
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from dlx_router.config.api_access import single_sign_on
from dlx_router.config.api_access.allowed_hosts import is_loopback
from dlx_router.config.environment import broker_url, setting_values
from dlx_router.config.environment import prefix as prefixes
from dlx_router.config.environment.broker_url import BrokerAddress
from dlx_router.config.environment.setting_values import DurationMs, OptionalPath, SizeBytes
from dlx_router.config.findings import nearest, shown
from dlx_router.config.units import duration_text, size_text
from dlx_router.core.names import Names

T = TypeVar("T")

PREFIX: Final = "DLX_ROUTER_"
MAX_SECRET_BYTES: Final = 1 << 16

# Kubernetes gives each pod variables of the services around it; for a service called dlx-router they have our prefix.
_SERVICE_LINK: Final = re.compile(
    r"SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_.*|.*_(SERVICE_HOST|SERVICE_PORT)|TEST_.*"
)


class SettingsError(Exception):
    """The settings cannot be used. `problems` each say which variable, what is wrong and what to do; never a secret."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.removesuffix("_ms").upper()


def option(name: str) -> str:
    """The command-line option of a field."""
    return "--" + name.removesuffix("_ms").replace("_", "-")


def default_text(name: str) -> str:
    """The default of a field as a person would write it; empty where there is none."""
    value = Settings.model_fields[name].default
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if name.endswith("_ms"):
        return duration_text(value)
    return size_text(value) if name.endswith("_bytes") else "" if value is None else str(value)


class Settings(BaseSettings):
    """All settings, from the environment; keyword arguments (the options of `run`) win. `load` tells errors clearly."""

    model_config = SettingsConfigDict(
        alias_generator=variable,
        populate_by_name=True,
        case_sensitive=True,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    amqp_url: Annotated[SecretStr, AfterValidator(setting_values.broker)] = Field(
        SecretStr("amqp://guest:guest@localhost:5672/"),
        description="The broker: amqp://USER:PASSWORD@HOST:PORT,HOST2:PORT/VHOST, or amqps://; begins with any.",
    )
    amqp_url_file: OptionalPath = Field(None, description="File that holds AMQP_URL; read anew at each connect.")
    management_url: Annotated[SecretStr, AfterValidator(setting_values.management)] | None = Field(
        None,
        description="Management API, to verify the policies on own queues: http://USER:PASSWORD@HOST:15672,HOST2:15672.",
    )
    management_url_file: OptionalPath = Field(None, description="File that holds MANAGEMENT_URL.")
    vhosts: str | None = Field(
        None,
        description="Vhosts to serve: a,b or * for all, new ones too (by the management API). Else that of AMQP_URL.",
    )
    policies: Path = Field(Path("policies"), description="Folder of the policy files.")
    prefix: Annotated[str, AfterValidator(prefixes.checked)] = Field(
        "dlx-router", description="Begins the name of all that the router owns."
    )
    declare: Literal["auto", "never"] = Field(
        "auto", description="auto: declare what is missing; never: check only, and print what is missing."
    )
    http_host: str = Field("127.0.0.1", description="Where /livez, /readyz, /metrics and /api/v1 listen.")
    http_port: int = Field(9719, ge=0, le=65535, description="Port of /livez, /readyz, /metrics and /api/v1.")
    http_allowed_hosts: Annotated[str, AfterValidator(setting_values.hosts)] | None = Field(
        None, description="Host names a,b of this port besides addresses and local names; * for any. See operate.md."
    )
    http_trusted_proxies: Annotated[str, AfterValidator(setting_values.proxies)] | None = Field(
        None, description="Addresses a,b of proxies whose X-Forwarded-For says where people are. Without it nobody's."
    )
    advertised_url: Annotated[str, AfterValidator(setting_values.advertised)] | None = Field(
        None,
        description="Where other replicas reach this port: http://HOST:9719; off: nowhere. Else as the broker sees us.",
    )
    console: Literal["on", "https", "off"] = Field(
        "on",
        description="Web pages at / of the port; https: people come by a proxy that speaks TLS.",
    )
    console_secret_file: OptionalPath = Field(
        None, description="File of the secret of console sessions, the same for all replicas. Else PROVENANCE_KEY_FILE."
    )
    sso_proxies: Annotated[str, AfterValidator(setting_values.proxies)] | None = Field(
        None, description="Addresses a,b of proxies that log people in to the console and name them. Without it nobody."
    )
    sso_roles: str | None = Field(
        None, description="Role of each group that such a proxy tells: sre=admin,ops=operator,*=viewer."
    )
    sso_headers: Annotated[str, AfterValidator(setting_values.headers)] = Field(
        single_sign_on.HEADERS, description="Headers in which it tells the user and the groups."
    )
    sso_group_separator: Annotated[str, AfterValidator(single_sign_on.checked_separator)] = Field(
        single_sign_on.SEPARATOR, description="The one character between groups; no group name may contain it."
    )
    prefetch: int = Field(1000, ge=1, le=65535, description="Letters in flight for each source.")
    in_flight_bytes: SizeBytes = Field(
        64 << 20,
        ge=1 << 16,
        description="Bytes of letters in flight, an equal share for each vhost; above it no more is read there.",
    )
    drain_seconds: int = Field(25, ge=0, le=3600, description="How long a stopping router waits for letters in flight.")
    confirm_timeout_ms: DurationMs = Field(
        30_000, ge=1000, description="A confirm that takes longer closes the channel."
    )
    heartbeat: int = Field(6, ge=1, le=600, description="Seconds between heartbeats of a connection.")
    tls_ca: OptionalPath = Field(
        None, description="File of the authorities that the broker's certificates are checked by, AMQP and management."
    )
    tls_cert: OptionalPath = Field(None, description="File of the certificate that we show.")
    tls_key: OptionalPath = Field(None, description="File of its private key.")
    tls_server_name: str | None = Field(
        None, description="Name in the broker's certificates. Without it the host of the URL."
    )
    log_format: Annotated[Literal["json", "text", "auto"], BeforeValidator(setting_values.lower)] = Field(
        "auto", description="json, text, or auto: text on a terminal."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(setting_values.lower)] = Field(
        "info", description="debug, info, warning or error."
    )
    traces: Annotated[Literal["off", "otlp"], BeforeValidator(setting_values.lower)] = Field(
        "off", description="otlp: a span of each letter for OpenTelemetry, as OTEL_* say (extra otel). off."
    )
    provenance_key_file: OptionalPath = Field(
        None,
        description="File of the key that signs records; the same for all replicas. Else one is kept in the broker.",
    )
    unroutable_grace_ms: DurationMs = Field(
        30_000, description="How long a letter without a route is tried before it is parked."
    )
    max_dead_letter_queues: int = Field(
        1000, ge=0, le=100_000, description="At most so many auto-created dead-letter queues."
    )
    journal: Literal["best-effort", "required", "off"] = Field(
        "best-effort",
        description="best-effort: letters wait at most 250 ms for their events. required: until they are written. off.",
    )
    index_path: OptionalPath = Field(
        None,
        description="File of this router's index, for letters, groups and queues; built from the journal.",
    )
    webhooks_file: OptionalPath = Field(
        None, description="File of who is told what happens, by webhooks; needs an index. See webhooks.md."
    )
    console_url: Annotated[str, AfterValidator(setting_values.http_url)] | None = Field(
        None, description="Where people find the console: https://HOST/PATH; links in webhooks begin with it."
    )
    api_tokens_file: OptionalPath = Field(
        None, description="File of the API's tokens, their roles and scopes. Off loopback the API needs it."
    )
    api_url: str = Field("http://127.0.0.1:9719", description="Where the commands find the router's API.")
    api_token: SecretStr | None = Field(None, description="The token that the commands show to the API.")
    api_token_file: OptionalPath = Field(None, description="File that holds API_TOKEN.")

    @classmethod
    def load(cls, overrides: Mapping[str, str] | None = None) -> Self:
        """Settings from the environment and `overrides` (by field); SettingsError lists everything that is wrong."""
        try:
            settings = cls(**dict[str, Any](overrides or {}))
        except ValidationError as error:
            raise SettingsError(
                *(_problem(detail["loc"], detail["msg"], detail["input"]) for detail in error.errors())
            ) from None
        settings.broker_address()
        if settings.has_management():
            settings.management_credentials()
        return settings

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.tls_key and not self.tls_cert:
            raise ValueError(f"{variable('tls_key')} needs {variable('tls_cert')}; write the certificate's file too")
        if "*" in self._named_vhosts() and not self.has_management():
            raise ValueError(f"{variable('vhosts')}=* needs {variable('management_url')}; write it, or name the vhosts")
        if bool(self.sso_proxies) != bool(self.sso_roles):
            raise ValueError(f"{variable('sso_proxies')} and {variable('sso_roles')} need each other; write both")
        try:
            single_sign_on.roles_of(self.sso_roles, self.sso_group_separator)
        except ValueError as error:
            raise ValueError(f"{variable('sso_roles')}: {error}") from None
        for name in ("amqp_url", "management_url", "api_token"):
            if {name, f"{name}_file"} <= self.model_fields_set and getattr(self, f"{name}_file"):
                raise ValueError(f"{variable(name)} and {variable(name)}_FILE are both set; keep one of them")
        return self

    @property
    def names(self) -> Names:
        """What our things are called in the broker."""
        return Names(self.prefix)

    def broker_address(self) -> BrokerAddress:
        """Where the broker is. Reads AMQP_URL_FILE anew at each call; SettingsError where it cannot be used."""
        return _checked("amqp_url", lambda: broker_url.broker_address(self._secret("amqp_url")))

    @property
    def tls_files(self) -> tuple[str | None, str | None, str | None, str | None]:
        """CA, certificate, its key, and the server's name: in the order of `Tls`."""
        return self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name

    def has_management(self) -> bool:
        """Whether there is a management API to ask."""
        return bool(self.management_url or self.management_url_file)

    def management_credentials(self) -> str:
        """The URL of the management API, secret included. Reads MANAGEMENT_URL_FILE anew; SettingsError if unusable."""
        return _checked("management_url", lambda: broker_url.management_url(self._secret("management_url")))

    def api_credentials(self) -> str:
        """The token that the commands show; "" for none. Reads API_TOKEN_FILE; SettingsError where it cannot."""
        return self._secret("api_token")

    def webhooks_path(self) -> Path | None:
        """The file of webhooks, for who tells; SettingsError where nobody could know what there is to tell."""
        if self.webhooks_file is None:
            return None
        if self.index_path is None or self.journal == "off":
            lacks = f"{variable('index_path')} and {variable('journal')} other than off"
            raise SettingsError(f"{variable('webhooks_file')} needs {lacks}: groups, and what was told, stand there")
        return Path(self.webhooks_file)

    def vhost_list(self) -> list[str]:
        """The vhosts to serve, each once; ["*"] means all."""
        named = self._named_vhosts()
        return ["*"] if "*" in named else named or [self.broker_address().vhost]

    def _named_vhosts(self) -> list[str]:
        names = (self.vhosts or "").split(",")
        return list(dict.fromkeys(name.strip() for name in names if name.strip()))

    def warnings(self) -> tuple[str, ...]:
        """What is set but has no effect: unknown variables, TLS without amqps, an index without a journal."""
        messages = []
        if any((self.tls_ca, self.tls_cert, self.tls_server_name)) and not self._has_tls():
            messages.append(f"{PREFIX}TLS_* is set, but the broker's URL begins with amqp://; write amqps:// for TLS")
        if self.index_path is not None and self.journal == "off":
            messages.append(
                f"{variable('index_path')} is set, but {variable('journal')}=off: there is nothing to index"
            )
        return (*messages, *self.open_api(), *unknown_variables(os.environ))

    def open_api(self) -> tuple[str, ...]:
        """That the API listens beyond this machine and no token can be valid; () where it is well."""
        if self.api_tokens_file or is_loopback(self.http_host):
            return ()
        text = f"{variable('http_host')} {self.http_host!r} is reachable from other machines, and there are no tokens"
        return (f"{text}: API and console refuse every request; set {variable('api_tokens_file')}",)

    def _has_tls(self) -> bool:
        secure = self.has_management() and self.management_credentials().startswith("https:")
        return secure or self.broker_address().tls

    def _secret(self, name: str) -> str:
        file: str | None = getattr(self, f"{name}_file")
        value: SecretStr | None = getattr(self, name)
        if file is None:
            return value.get_secret_value() if value is not None else ""
        try:
            with Path(file).open("rb") as opened:
                return opened.read(MAX_SECRET_BYTES).decode().strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise SettingsError(f"{variable(name)}_FILE: {file} cannot be read: {why}; name a readable file") from None


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable with our prefix that is none of ours, with the nearest that is."""
    known = {variable(name) for name in Settings.model_fields} | {f"{PREFIX}ARCHIVE"}  # that of the pipeline
    ours = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    strange = [name for name in ours if not _SERVICE_LINK.fullmatch(name.removeprefix(PREFIX))]
    return [f"{name} is no setting{_suggested(name, known)}" for name in strange]


def _suggested(name: str, known: set[str]) -> str:
    words = {candidate.removeprefix(PREFIX).replace("_", "-").lower(): candidate for candidate in known}
    hint = nearest(name.removeprefix(PREFIX), words)
    return next(
        (f"; did you mean {candidate}?" for word, candidate in words.items() if f'"{word}"' in hint),
        "; see dlx-router run --help",
    )


def _checked(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise SettingsError(f"{variable(name)}: {error}") from None


def _problem(where: tuple[int | str, ...], message: str, given: object) -> str:
    """One sentence; pydantic's words for types are kept, its prefixes for our own are not."""
    text = message.removeprefix("Value error, ")
    if not where:
        return text
    name = next((name for name in Settings.model_fields if where[0] in {name, variable(name)}), None)
    if name is None:
        return f"{where[0]}: {text}"
    field = Settings.model_fields[name]
    secret = "SecretStr" in str(field.annotation) or not isinstance(given, str | int)
    actual = "" if secret else f", found {shown(str(given))}"
    if message != text:
        return f"{where[0]}: {text}{actual}"
    default = f"; the default is {default_text(name)}" if default_text(name) else ""
    return f"{variable(name)}: {text[:1].lower()}{text[1:]}{actual}{default}; it is: {field.description}"
