"""Which address a request is of, where proxies say it: their header is read from its end, as far as it is trusted."""

import subprocess
import sys
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.api_access.trusted_proxies import MAX_HOPS, TrustedProxies
from dlx_router.config.environment.settings import Settings, SettingsError

PROXIES = TrustedProxies("10.0.0.0/24, fd00::5", "192.0.2.7")


def client(*forwarded: str, peer: str = "10.0.0.5") -> str:
    headers = [(b"host", b"dlx"), *((b"x-forwarded-for", value.encode("latin-1")) for value in forwarded)]
    return PROXIES.client(peer, headers)


@pytest.mark.parametrize(
    ("forwarded", "whose"),
    [
        ((), "10.0.0.5"),
        (("203.0.113.9",), "203.0.113.9"),
        (("198.51.100.1, 203.0.113.9",), "203.0.113.9"),
        (("198.51.100.1", "203.0.113.9"), "203.0.113.9"),
        (("198.51.100.1, 203.0.113.9 , 10.0.0.9,192.0.2.7",), "203.0.113.9"),
        (("10.0.0.8, 10.0.0.9",), "10.0.0.8"),
        (("203.0.113.9:4711",), "203.0.113.9"),
        (("2001:db8::1",), "2001:db8::1"),
        (("[2001:DB8::1]:4711",), "2001:db8::1"),
        (("[2001:db8:0::1]",), "2001:db8::1"),
        (("fe80::1%eth0",), "fe80::1"),
        (("::ffff:203.0.113.9",), "203.0.113.9"),
        (("203.0.113.9, ::ffff:10.0.0.9",), "203.0.113.9"),
        (("203.0.113.9, fd00::5",), "203.0.113.9"),
    ],
)
def test_the_last_that_is_no_trusted_proxy_is_the_client(forwarded: tuple[str, ...], whose: str) -> None:
    assert client(*forwarded) == whose
    assert client(*forwarded, peer="::ffff:10.0.0.5") == whose


@pytest.mark.parametrize(
    "malformed",
    ["", " ", "unknown", "_hidden", "203.0.113.9,", "203.0.113", "203.0.113.9.1", "010.0.0.1", "203.0.113.9:x",
     "1" * 9000, "[2001:db8::1", "2001:db8::1]:80", "[]", "[]:80", ":80", "203.0.113.9:123456", "203.0.113.9;",
     "\xa0203.0.113.9x"],
)  # fmt: skip
def test_what_is_no_address_leaves_that_of_the_proxy(malformed: str) -> None:
    assert client(malformed) == "10.0.0.5"
    assert client(f"203.0.113.9, {malformed}") == "10.0.0.5"
    assert client(f"203.0.113.9, {malformed}, 10.0.0.9") == "10.0.0.9", "the last that is sure"


@pytest.mark.parametrize("peer", ["10.0.1.5", "127.0.0.1", "::1", "::ffff:10.0.1.5", "203.0.113.7"])
def test_of_anybody_else_nothing_is_believed(peer: str) -> None:
    whose = peer.removeprefix("::ffff:")
    assert client("198.51.100.1", peer=peer) == whose
    assert client("198.51.100.1, 10.0.0.5", peer=peer) == whose
    assert TrustedProxies().client(peer, [(b"x-forwarded-for", b"198.51.100.1")]) == whose


def test_who_has_no_address_stays_who_they_are() -> None:
    assert client("198.51.100.1", peer="?") == "?"
    assert not PROXIES.trusts("?")


def test_so_many_are_looked_at_and_no_more() -> None:
    assert client(", ".join(["203.0.113.9", *["10.0.0.9"] * (MAX_HOPS - 1)])) == "203.0.113.9"
    assert client(", ".join(["203.0.113.9", *["10.0.0.9"] * MAX_HOPS])) == "10.0.0.9"


@given(st.lists(st.text(st.characters(max_codepoint=255), max_size=60), max_size=4))
def test_whatever_is_written_there_an_address_comes_of_it(forwarded: list[str]) -> None:
    """So what is kept for each has a bound."""
    ip_address(client(*forwarded))


@pytest.mark.parametrize("wrong", ["proxy", "0.0.0.0/0", "::/0", "10.0.0.5/8"])
def test_a_setting_that_is_none_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLX_ROUTER_HTTP_TRUSTED_PROXIES", wrong)
    with pytest.raises(SettingsError, match=f"HTTP_TRUSTED_PROXIES: '{wrong}' is"):
        Settings.load({})


def test_the_console_of_its_own_refuses_what_is_none() -> None:
    argv = [sys.executable, "-m", "dlx_router", "console", "--port", "0", "--trusted-proxies", "proxy"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "--trusted-proxies: 'proxy' is no address; write 10.0.0.5" in ended.stderr) == (2, True)
