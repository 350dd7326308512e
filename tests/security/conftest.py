"""`guest_list`: users of the broker with rights in the test's vhost only, gone afterwards."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from dlx_router.config.rights.permissions import Grant, Right
from tests.support.vhost import Vhost

EVERYTHING = (".*", ".*", ".*")
_numbers = itertools.count(1)

Admit = Callable[..., str]


def rights_of(grant: Grant) -> tuple[str, str, str]:
    """Configure, write, read."""
    return grant.regex(Right.CONFIGURE), grant.regex(Right.WRITE), grant.regex(Right.READ)


@pytest.fixture
def admit(vhost: Vhost) -> Iterator[Admit]:
    """admit(configure, write, read, password=…, tags=…) → the name of a new user who has these rights."""
    admitted: list[str] = []

    def make(configure: str, write: str, read: str, *, password: str = "secret", tags: str = "") -> str:
        user = f"user-{next(_numbers)}-{os.getpid()}"
        vhost.put(f"users/{user}", {"password": password, "tags": tags})
        admitted.append(user)
        allow(vhost, user, configure, write, read)
        return user

    yield make
    for user in admitted:
        vhost.api.delete(f"users/{user}")


def allow(vhost: Vhost, user: str, configure: str, write: str, read: str) -> None:
    """Set what a user may do from now on."""
    vhost.put(f"permissions/{vhost.quoted}/{user}", {"configure": configure, "write": write, "read": read})


def url_for(vhost: Vhost, user: str, password: str = "secret") -> str:
    """The AMQP URL of the test's vhost for another user."""
    scheme, _, rest = vhost.amqp_url.partition("://")
    return f"{scheme}://{user}:{password}@{rest.rpartition('@')[2]}"
