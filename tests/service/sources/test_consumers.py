"""What a stop waits for."""

from dlx_router.core.names import Names
from dlx_router.service.sources.consumers import Consumers
from dlx_router.telemetry.metrics import Metrics


def test_a_stop_before_there_is_a_connection_waits_for_nothing() -> None:
    consumers = Consumers("/", Names("dlx-router"), b"", Metrics(), lambda _queue, _error: None)
    consumers.drain()
    assert (consumers.may_get_more, consumers.in_flight) == (False, 0)
