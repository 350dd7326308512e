"""Where the tests of the control plane happen: a topology in the test's vhost, and its queues as the API shows them."""

from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dlx_router.broker.address import Host, Login
from dlx_router.broker.topology import Topology
from dlx_router.core.names import Names
from tests.support.vhost import Vhost

NAMES = Names()


def topology(vhost: Vhost, *, declare: bool = True, user: str = "", password: str = "") -> Topology:
    return Topology(*where(vhost, user, password), None, NAMES, declare=declare)


def where(vhost: Vhost, user: str = "", password: str = "") -> tuple[Host, Login]:
    url = urlsplit(vhost.amqp_url)
    login = Login(user or unquote(url.username or ""), password or unquote(url.password or ""), vhost.name)
    return Host(url.hostname or "", url.port or 5672), login


def arguments(vhost: Vhost, queue: str) -> dict[str, Any]:
    document: dict[str, Any] = vhost.get(f"queues/{vhost.quoted}/{quote(queue, safe='')}?columns=arguments")[
        "arguments"
    ]
    return document


def bindings(vhost: Vhost, queue: str) -> set[tuple[str, str]]:
    rows = vhost.get(f"queues/{vhost.quoted}/{quote(queue, safe='')}/bindings")
    return {(row["source"], row["routing_key"]) for row in rows if row["source"]}


def user(vhost: Vhost, name: str, tags: str = "", **rights: str) -> tuple[str, str]:
    """A user of this broker with these rights (configure, write, read) in the vhost; none are given by default."""
    full = f"{name}-{vhost.name}"
    vhost.put(f"users/{full}", {"password": "s3cret/@word", "tags": tags})
    vhost.put(f"permissions/{vhost.quoted}/{full}", {"configure": "^$", "write": "^$", "read": "^$"} | rights)
    return full, "s3cret/@word"
