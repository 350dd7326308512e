"""Settings: every variable of the interface, secrets that stay secret, errors that say what to do."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.environment.broker_url import broker_address
from dlx_router.config.environment.settings import Settings, SettingsError, default_text, variable

INTERFACE = """
AMQP_URL AMQP_URL_FILE MANAGEMENT_URL MANAGEMENT_URL_FILE VHOSTS POLICIES PREFIX DECLARE HTTP_HOST HTTP_PORT
API_TOKENS_FILE API_URL API_TOKEN API_TOKEN_FILE PREFETCH IN_FLIGHT_BYTES DRAIN_SECONDS CONFIRM_TIMEOUT HEARTBEAT
TLS_CA TLS_CERT TLS_KEY TLS_SERVER_NAME JOURNAL INDEX_PATH LOG_FORMAT LOG_LEVEL PROVENANCE_KEY_FILE UNROUTABLE_GRACE
MAX_DEAD_LETTER_QUEUES
"""
SINCE = (
    "TRACES",
    "HTTP_ALLOWED_HOSTS",
    "WEBHOOKS_FILE",
    "CONSOLE_URL",
    "CONSOLE",
    "ADVERTISED_URL",
    "CONSOLE_SECRET_FILE",
    "SSO_PROXIES",
    "SSO_ROLES",
    "SSO_HEADERS",
    "SSO_GROUP_SEPARATOR",
    "HTTP_TRUSTED_PROXIES",
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DLX_ROUTER_")]:
        monkeypatch.delenv(name)


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"DLX_ROUTER_{name}", value)
    return Settings.load()


def test_every_variable_of_the_interface_is_a_setting_and_no_other() -> None:
    assert sorted(variable(name) for name in Settings.model_fields) == sorted(
        f"DLX_ROUTER_{name}" for name in (*INTERFACE.split(), *SINCE)
    )


def test_the_defaults_are_those_of_the_interface() -> None:
    settings = Settings.load()
    address = settings.broker_address()
    assert (address.hosts, address.user, address.vhost, address.tls) == ((("localhost", 5672),), "guest", "/", False)
    assert (settings.http_host, settings.http_port, settings.prefix, settings.declare) == (
        "127.0.0.1",
        9719,
        "dlx-router",
        "auto",
    )
    assert (settings.prefetch, settings.in_flight_bytes, settings.drain_seconds) == (1000, 64 << 20, 25)
    assert (settings.confirm_timeout_ms, settings.heartbeat, settings.unroutable_grace_ms) == (30_000, 6, 30_000)
    assert (settings.max_dead_letter_queues, settings.has_management(), settings.vhost_list()) == (1000, False, ["/"])
    assert (settings.warnings(), default_text("in_flight_bytes"), default_text("unroutable_grace_ms")) == (
        (),
        "64MiB",
        "30s",
    )


def test_variables_are_read_with_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch, CONFIRM_TIMEOUT="1500", UNROUTABLE_GRACE="2m", IN_FLIGHT_BYTES="1GiB", HTTP_PORT="80",
        VHOSTS="/, shop,/", LOG_LEVEL="INFO", MANAGEMENT_URL="", POLICIES="/etc/policies",
    )  # fmt: skip
    assert (settings.confirm_timeout_ms, settings.unroutable_grace_ms, settings.in_flight_bytes) == (
        1500,
        120_000,
        1 << 30,
    )
    assert (settings.http_port, settings.vhost_list(), settings.log_level) == (80, ["/", "shop"], "info")
    assert (settings.has_management(), settings.policies) == (False, Path("/etc/policies"))


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLX_ROUTER_HTTP_PORT", "1")
    assert Settings.load({"http_port": "2"}).http_port == 2


@pytest.mark.parametrize(("vhosts", "expected"), [("*", ["*"]), ("a,*", ["*"]), ("b , a", ["b", "a"]), (",", ["vh"])])
def test_vhosts_are_listed_once_in_order(vhosts: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, AMQP_URL="amqp://h/vh", MANAGEMENT_URL="http://h", VHOSTS=vhosts).vhost_list() == expected


ADDRESSES = [
    ("amqp://h", (("h", 5672),), "guest", "guest", "/", False),
    ("amqp://h/", (("h", 5672),), "guest", "guest", "/", False),
    ("amqp://h/%2F", (("h", 5672),), "guest", "guest", "/", False),
    ("amqps://u:p@h/vh", (("h", 5671),), "u", "p", "vh", True),
    ("amqp://u@h1:1,h2,[::1]:3/a%2Fb", (("h1", 1), ("h2", 5672), ("::1", 3)), "u", "guest", "a/b", False),
    ("amqp://u%40x:p%2F%3A@h", (("h", 5672),), "u@x", "p/:", "/", False),
    ("amqp://u:@h", (("h", 5672),), "u", "", "/", False),
    ("amqp://u:p@ss@h", (("h", 5672),), "u", "p@ss", "/", False),
]


@pytest.mark.parametrize(("url", "hosts", "user", "password", "vhost", "tls"), ADDRESSES)
def test_an_amqp_url_is_read_as_other_clients_read_it(
    url: str, hosts: tuple[tuple[str, int], ...], user: str, password: str, vhost: str, *, tls: bool
) -> None:
    address = broker_address(url)
    assert (address.hosts, address.user, address.password.get_secret_value()) == (hosts, user, password)
    assert (address.vhost, address.tls) == (vhost, tls)


BAD_URLS = """
h http://u:hush@h amqp:// amqp://u:hush@ amqp://u:hush@h:x amqp://u:hush@h:99999 amqp://u:hush@h:0 amqp://u:hush@h,
amqp://u:hush@h/a/b amqp://u:hush@h/?heartbeat=1 amqp://u:hush/x@h amqp://u:hush@[::1 amqp://%ff:hush@h
amqp://u:hush@h: amqp:u:hush@h
"""


@pytest.mark.parametrize("url", [" ", *BAD_URLS.split()])
def test_a_bad_url_is_refused_without_being_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLX_ROUTER_AMQP_URL", url)
    with pytest.raises(SettingsError) as raised:
        Settings.load()
    assert str(raised.value).startswith("DLX_ROUTER_AMQP_URL: ")
    assert "hush" not in f"{raised.value!r} {raised.value}"


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for url in (text, f"amqp://{text}"):
        try:
            message = f"write {broker_address(url).hosts}"
        except ValueError as error:
            message = str(error)
        assert "write" in message or "encode" in message


PROBLEMS = [
    ({"HTTP_PORT": "x"}, "DLX_ROUTER_HTTP_PORT: input should be a valid integer"),
    ({"HTTP_PORT": "70000"}, "DLX_ROUTER_HTTP_PORT"),
    ({"CONFIRM_TIMEOUT": "30"}, "DLX_ROUTER_CONFIRM_TIMEOUT"),
    ({"CONFIRM_TIMEOUT": "soon"}, 'write milliseconds or "250ms"'),
    ({"IN_FLIGHT_BYTES": "many"}, "64KiB"),
    ({"DECLARE": "maybe"}, "'auto' or 'never'"),
    ({"PREFIX": "a b"}, "not a prefix"),
    ({"PREFIX": "amq.x"}, "not a prefix"),
    ({"PREFIX": "DLQ"}, "dead-letter queues are called DLQ.<queue>"),
    ({"PREFIX": "DLQ.eu"}, "would make them the router's own; write another"),
    ({"LOG_FORMAT": "xml"}, "DLX_ROUTER_LOG_FORMAT"),
    ({"MANAGEMENT_URL": "ftp://u:hush@h"}, "DLX_ROUTER_MANAGEMENT_URL: not the URL of a management API"),
    ({"VHOSTS": "a,*"}, "needs DLX_ROUTER_MANAGEMENT_URL"),
    ({"TLS_KEY": "k"}, "DLX_ROUTER_TLS_CERT"),
    ({"AMQP_URL_FILE": "/nowhere"}, "DLX_ROUTER_AMQP_URL_FILE: /nowhere cannot be read"),
    ({"AMQP_URL_FILE": "/nowhere", "AMQP_URL": "amqp://u:hush@h"}, "both set"),
]


@pytest.mark.parametrize(("variables", "words"), PROBLEMS)
def test_a_bad_variable_is_named_with_what_to_do(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(monkeypatch, **variables)
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)


def test_all_problems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as raised:
        load(monkeypatch, HTTP_PORT="x", PREFETCH="0", DECLARE="no")
    assert len(raised.value.problems) == 3


def test_no_secret_is_ever_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, AMQP_URL="amqp://u:hush@h", MANAGEMENT_URL="http://u:hush@h:1", API_TOKEN="hush")
    assert (
        "hush"
        not in f"{settings!r} {settings} {settings.broker_address()!r} {settings.model_dump()} {settings.warnings()}"
    )
    assert settings.management_credentials() == "http://u:hush@h:1"
    assert settings.broker_address().password.get_secret_value() == "hush"


def test_a_secret_file_is_read_anew_at_each_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://u:first@h\n")
    file.with_name("management").write_text("http://u:first@h")
    settings = load(monkeypatch, AMQP_URL_FILE=str(file), MANAGEMENT_URL_FILE=str(file.with_name("management")))
    file.write_text("amqp://u:second@h\n")
    file.with_name("management").write_text("http://u:second@h")
    assert settings.broker_address().password.get_secret_value() == "second"
    assert settings.management_credentials() == "http://u:second@h"
    file.write_text("not:hush")
    with pytest.raises(SettingsError) as raised:
        settings.broker_address()
    assert "hush" not in str(raised.value)


WARNINGS = [
    ({"PREFECH": "1"}, "DLX_ROUTER_PREFECH is no setting; did you mean DLX_ROUTER_PREFETCH?"),
    ({"XYZZY": "1"}, "DLX_ROUTER_XYZZY is no setting; see dlx-router run --help"),
    ({"TLS_CA": "ca.pem"}, "amqps://"),
]


@pytest.mark.parametrize(("variables", "words"), WARNINGS)
def test_what_has_no_effect_is_a_warning(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (warning,) = load(monkeypatch, **variables).warnings()
    assert words in warning


def test_variables_that_kubernetes_makes_of_a_service_are_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PORT", "PORT_9719_TCP", "PORT_9719_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP")
    assert load(monkeypatch, **dict.fromkeys(names, "tcp://10.0.0.1:9719")).warnings() == ()
