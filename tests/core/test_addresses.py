"""Which addresses a webhook may go to, whatever they are dressed as."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.addresses import refusal

REFUSED = [
    ("127.0.0.1", "loopback"), ("127.9.9.9", "loopback"), ("::1", "loopback"), ("169.254.169.254", "link-local"),
    ("fe80::1", "link-local"), ("10.1.2.3", "private"), ("172.16.0.1", "private"), ("192.168.1.1", "private"),
    ("100.64.0.1", "private"), ("fd00::1", "private"), ("0.0.0.0", "no address"), ("::", "no address"),
    ("224.0.0.1", "no address"), ("ff02::1", "no address"), ("240.0.0.1", "private"), ("255.255.255.255", "private"),
    ("::ffff:127.0.0.1", "loopback"), ("::ffff:169.254.169.254", "link-local"), ("2002:7f00:1::", "loopback"),
    ("2002:a9fe:a9fe::1", "link-local"), ("64:ff9b::a00:1", "private"), ("64:ff9b:1::1", "private"),
    # What some clouds answer their machines by, and what no version of Python, or not each, calls private.
    ("192.0.0.192", "private"), ("168.63.129.16", "private"), ("100.100.100.200", "private"),
    ("fd00:ec2::254", "private"), ("fec0::1", "private"), ("5f00::1", "private"), ("::169.254.169.254", "private"),
    ("::ffff:0:169.254.169.254", "private"), ("2001:0:a00:1::5601:5601", "private"), ("::ffff:192.0.0.192", "private"),
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize(("address", "why"), REFUSED)
def test_what_only_this_machine_or_network_reaches_is_refused(address: str, why: str) -> None:
    assert why in refusal(ip_address(address), ())


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_not(address: str) -> None:
    assert refusal(ip_address(address), ()) == ""


def test_a_network_that_is_named_is_allowed_and_no_other() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    assert refusal(ip_address("10.1.2.3"), allowed) == ""
    assert refusal(ip_address("::ffff:10.1.2.3"), allowed) == ""
    assert refusal(ip_address("fd12::1"), allowed) == ""
    assert refusal(ip_address("10.2.0.1"), allowed)
    assert refusal(ip_address("127.0.0.1"), allowed)


def test_one_address_that_is_allowed_says_nothing_of_another_that_is_carried_beside_it() -> None:
    """Teredo names two: its server, and whoever is behind it."""
    server, client = IPv4Address("10.1.2.3"), IPv4Address("169.254.169.254")
    teredo = IPv6Address(0x20010000 << 96 | int(server) << 64 | int(client) ^ 0xFFFF_FFFF)
    assert teredo.teredo == (server, client)
    assert refusal(teredo, [ip_network("10.0.0.0/8")])
    assert refusal(teredo, [ip_network("10.0.0.0/8"), ip_network("169.254.0.0/16")]), "it is no address of the internet"
    assert refusal(teredo, [ip_network("2001::/32")]) == "", "named as it stands"


@given(
    st.integers(0, 2**32 - 1), st.lists(st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16"]), max_size=2)
)
def test_nothing_that_is_carried_is_allowed_by_what_carries_it(number: int, named: list[str]) -> None:
    inner, allowed = IPv4Address(number), [ip_network(network) for network in named]
    for carrier in (IPv6Address(0x2002 << 112 | number << 80 | 1), IPv6Address(int(IPv6Address("64:ff9b::")) | number)):
        assert bool(refusal(carrier, allowed)) == bool(refusal(inner, allowed))


@given(st.integers(0, 2**32 - 1))
def test_an_address_inside_another_one_is_judged_as_itself(number: int) -> None:
    inner = IPv4Address(number)
    mapped, nat64 = IPv6Address(0xFFFF << 32 | number), IPv6Address(int(IPv6Address("64:ff9b::")) | number)
    assert bool(refusal(mapped, ())) == bool(refusal(inner, ())) == bool(refusal(nat64, ()))
