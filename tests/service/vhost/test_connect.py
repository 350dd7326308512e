"""Which node a router begins with: replicas do not all choose the first of the URL."""

import pytest

from dlx_router.config.environment.settings import Settings
from dlx_router.service.vhost.connect import addresses, first_host


def order(first: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DLX_ROUTER_AMQP_URL", "amqp://u:p@a,b,c/")
    hosts, _, _ = addresses(Settings.load(), first)("/")
    return "".join(host.name for host in hosts)


@pytest.mark.parametrize(("first", "expected"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc"), (65_000, "cab")])
def test_the_order_of_the_url_is_that_of_a_ring(first: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert order(first, monkeypatch) == expected


def test_numbered_pods_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [order(first_host(f"dlx-router-{pod}"), monkeypatch)[0] for pod in range(4)] == ["a", "b", "c", "a"]


def test_others_begin_anywhere() -> None:
    assert len({first_host("dlx-router-7f9d8c-x2kfm") % 3 for _ in range(100)}) == 3
