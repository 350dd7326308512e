"""Faults on one version only, the newest that was asked for: the router's side of them does not depend on it.

`make chaos ARGS="--version 3.10"` breaks things on another.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import MUST, NAMED
from tools import brokers


@pytest.fixture(scope="session", params=NAMED[-1:] or [brokers.ANY])
def broker(request: pytest.FixtureRequest) -> Iterator[brokers.Broker]:
    """As the fixture of that name for all tests, of one version."""
    with ExitStack() as stack:
        try:
            node = stack.enter_context(brokers.started(request.param))
        except brokers.BrokerMissingError as error:
            pytest.fail(str(error)) if MUST else pytest.skip(str(error))
        yield node
