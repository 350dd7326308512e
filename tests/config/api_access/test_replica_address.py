"""ADVERTISED_URL: an address of a router's port, and of nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.api_access.replica_address import advertised, checked
from dlx_router.config.environment.settings import Settings, SettingsError

GOOD = {
    "http://10.1.2.3:9719": "http://10.1.2.3:9719",
    "http://10.1.2.3:9719/": "http://10.1.2.3:9719",
    "https://router.queues.svc": "https://router.queues.svc",
    "http://ROUTER-0.router:9719": "http://router-0.router:9719",
    "http://[2001:db8::1]:9719": "http://[2001:db8::1]:9719",
    "http://127.0.0.1:9719": "http://127.0.0.1:9719",
}
BAD = [
    "", "router:9719", "10.1.2.3", "ftp://router", "file:///etc/passwd", "http://", "http://:9719", "http://user@router:1",
    "http://user:word@router:1", "http://router:9719/api", "http://router?x=1", "http://router#x", "http://router:port",
    "http://router:99999", "http://router:0", "http://169.254.169.254", "http://[fe80::1]:9719", "http://0.0.0.0:9719",
    "http://[::]:9719", "http://224.0.0.1", "http://[ff02::1]", "http://255.255.255.255", "http://[::ffff:169.254.169.254]",
    "http://router\r\nx: y", "http://ro uter", "http://r\u00f6uter", "http://router/..//evil", "http://-" + "a" * 400,
    "http://a/b@c:9719", "http://[::1%25lo]:1", "javascript:alert(1)",
    "http://127.1:9719", "http://2852039166", "http://0xa9.254.169.254", "http://0x7f000001", "http://1.2.3.4.5",
    "http://169.254.169.254.", "//router:9719",
]  # fmt: skip


@pytest.mark.parametrize(("said", "url"), GOOD.items())
def test_the_address_of_a_port(said: str, url: str) -> None:
    assert checked(said) == url
    assert checked(url) == url


@pytest.mark.parametrize("said", BAD)
def test_what_is_none(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="http://HOST:9719"):
        checked(said)
    if said:
        monkeypatch.setenv("DLX_ROUTER_ADVERTISED_URL", said.encode("utf-8", "replace").decode())
        with pytest.raises(SettingsError, match="DLX_ROUTER_ADVERTISED_URL"):
            Settings.load({})


@given(st.text(max_size=60).map(lambda text: f"http://{text}") | st.text(max_size=60))
def test_whatever_is_said_is_an_address_or_an_error(text: str) -> None:
    try:
        url = checked(text)
    except ValueError:
        return
    assert url.isascii()
    assert not {*url} & {*" @?#\\\r\n\t"}
    assert url.count("/") == 2


@pytest.mark.parametrize(
    ("said", "bound", "local", "url"),
    [
        (None, "0.0.0.0", "10.0.0.7", "http://10.0.0.7:9719"),
        (None, "::", "2001:db8::7", "http://[2001:db8::7]:9719"),
        (None, "", "10.0.0.7", "http://10.0.0.7:9719"),
        (None, "10.0.0.9", "10.0.0.7", "http://10.0.0.9:9719"),
        (None, "127.0.0.1", "10.0.0.7", "http://127.0.0.1:9719"),
        (None, "0.0.0.0", "", ""),
        (None, "0.0.0.0", "fe80::1%eth0", ""),
        ("off", "0.0.0.0", "10.0.0.7", ""),
        ("https://dlx.example", "127.0.0.1", "10.0.0.7", "https://dlx.example"),
    ],
)
def test_who_listens_everywhere_is_where_the_broker_sees_it(said: str | None, bound: str, local: str, url: str) -> None:
    assert advertised(said, bound, 9719, local) == url
