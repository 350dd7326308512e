"""TLS to a real RabbitMQ that asks for certificates: who is not who he should be is refused, and it is said why.

That the management API is verified too: tests/service/test_operations.py. Our own side of each check, without a router:
tests/broker/test_topology_trouble.py.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.bulk import INBOX, dying_queue
from tests.support.certificates import Authority, Pair
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

Start = Callable[..., Router]

POLICY: Final = "version: 1\npolicies: [{name: all, match: 'tls.#', definition: {max-delivery-attempts: 1}}]\n"
ASK: Final = {"ssl_options.verify": "verify_peer", "ssl_options.fail_if_no_peer_cert": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("authorities")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "right", "the right authority")


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Authority:
    return Authority(folder / "other", "another authority")


def _expired(folder: Path, name: str) -> Pair:
    """A certificate of the right authority whose time is over."""
    right = folder / "right"
    made = Pair(right / f"{name}-expired.pem", right / f"{name}.key")
    sign = ["-CA", right / "ca.pem", "-CAkey", right / "ca.key", "-CAcreateserial", "-days", "0"]
    asked = ["-in", right / f"{name}.csr", "-extfile", right / "names", "-out", made.certificate]
    subprocess.run(["openssl", "x509", "-req", *map(str, [*asked, *sign])], check=True, capture_output=True)
    eventually(lambda: time.time() > made.certificate.stat().st_mtime + 2)
    return made


def _node(broker: brokers.Broker, authority: Authority, shown: Pair) -> Iterator[brokers.Node]:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be started twice")
    node = brokers.Node(broker.program, tls=(authority.certificate, shown.certificate, shown.key), config=ASK)
    yield node
    node.close()


@pytest.fixture(scope="module")
def node(broker: brokers.Broker, authority: Authority) -> Iterator[brokers.Node]:
    """Shows a good certificate for localhost, and turns away who shows none."""
    yield from _node(broker, authority, authority.issue("localhost"))


@pytest.fixture(scope="module")
def expired_node(broker: brokers.Broker, authority: Authority, folder: Path) -> Iterator[brokers.Node]:
    authority.issue("localhost")
    yield from _node(broker, authority, _expired(folder, "localhost"))


def _settings(node: brokers.Node, authority: Authority, client: Pair | None) -> dict[str, str]:
    shown = {"TLS_CERT": str(client.certificate), "TLS_KEY": str(client.key)} if client else {}
    return {"AMQP_URL": node.amqps_url, "MANAGEMENT_URL": "", "TLS_CA": str(authority.certificate), **shown}


def _refused(router: Router, *words: str, look: str = "TLS_CA, TLS_SERVER_NAME") -> None:
    """Not ready for as long as one looks; /readyz and the log say why and where to look, without a traceback."""
    eventually(lambda: any(word in router.ask("/readyz")[1].lower() for word in words), within=20)
    eventually(lambda: any(word in router.output.lower() for word in words))
    assert consistently(lambda: router.running and router.ask("/readyz")[0] == 503)
    assert router.ask("/livez")[0] == 200
    output = router.output + router.ask("/readyz")[1]
    assert look in output
    assert "Traceback" not in output
    assert "guest:guest" not in output
    assert router.metric("deliveries_total") == 0


@pytest.mark.usefixtures("newest")
def test_both_sides_show_certificates_and_letters_flow(
    node: brokers.Node, authority: Authority, start_router: Start
) -> None:
    start_router(POLICY, **_settings(node, authority, authority.issue("router")))
    with Client(node.amqp_url) as client:
        dying_queue(client, "tls.a")
        client.publish("by TLS", key="tls.a")
        assert client.take("DLQ.tls.a").body == b"by TLS"
        assert client.depth(INBOX) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_an_expired_certificate_of_the_broker_is_refused(
    expired_node: brokers.Node, authority: Authority, start_router: Start
) -> None:
    router = start_router(POLICY, wait=False, **_settings(expired_node, authority, authority.issue("router")))
    _refused(router, "certificate has expired")


def test_an_unknown_authority_is_refused(
    node: brokers.Node, authority: Authority, stranger: Authority, start_router: Start
) -> None:
    given = _settings(node, stranger, authority.issue("router"))
    _refused(start_router(POLICY, wait=False, **given), "certificate verify failed")


def test_another_host_name_is_refused_unless_it_is_named(
    node: brokers.Node, authority: Authority, start_router: Start
) -> None:
    given = _settings(node, authority, authority.issue("router"))
    by_number = given | {"AMQP_URL": given["AMQP_URL"].replace("localhost", "127.0.0.1")}
    _refused(start_router(POLICY, wait=False, **by_number), "mismatch", "not valid for")
    _refused(start_router(POLICY, wait=False, **given, TLS_SERVER_NAME="other.example"), "mismatch", "not valid for")
    start_router(POLICY, **by_number, TLS_SERVER_NAME="localhost")


CLIENT_REFUSED: Final = ("alert", "certificate required", "connection reset", "lost", "unexpected", "eof")


def test_a_client_without_a_certificate_is_turned_away(
    node: brokers.Node, authority: Authority, start_router: Start
) -> None:
    _refused(start_router(POLICY, wait=False, **_settings(node, authority, None)), *CLIENT_REFUSED, look="TLS_CERT")


def test_a_client_with_an_expired_certificate_is_turned_away(
    node: brokers.Node, authority: Authority, folder: Path, start_router: Start
) -> None:
    authority.issue("late")
    _refused(
        start_router(POLICY, wait=False, **_settings(node, authority, _expired(folder, "late"))),
        *CLIENT_REFUSED,
        look="TLS_CERT",
    )


def test_a_key_that_is_not_the_certificates_is_named(
    node: brokers.Node, authority: Authority, start_router: Start
) -> None:
    own, other = authority.issue("router"), authority.issue("another")
    _refused(
        start_router(POLICY, wait=False, **_settings(node, authority, Pair(own.certificate, other.key))),
        "key values mismatch",
        look="TLS_KEY",
    )


def test_plain_amqp_to_a_tls_port_is_said(node: brokers.Node, authority: Authority, start_router: Start) -> None:
    url = node.amqps_url.replace("amqps:", "amqp:")
    _refused(
        start_router(POLICY, wait=False, AMQP_URL=url, MANAGEMENT_URL=""), "lost", "reset", "closed", look="amqps://"
    )
