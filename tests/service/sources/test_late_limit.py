"""A delivery limit that is told late is known to whoever asks afterwards, as one that was told in time."""

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.management import Management
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.core.attending import QueueFacts
from dlx_router.core.selector import Selector, SelectorKind
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.queue_reads import QueueReads
from dlx_router.service.sources.attach import Attach, NotAttended, Setting
from dlx_router.telemetry.readiness import Readiness
from tests.support.worker import NAMES, SOURCE, Session, Taken, place

VERSION: Final = (4, 0)


class _Api:
    """Says of each queue that it deletes what is returned twice."""

    async def facts(self, _vhost: str, _queue: str) -> QueueFacts:
        return QueueFacts("quorum", {"x-delivery-limit": 1})


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_late_limit_is_that_of_the_queue_for_whoever_looks_into_it(*, accepted: bool) -> None:
    """After a crash of RabbitMQ (541) its letters were looked at as if they had twenty returns: that deleted them."""
    session: Any = Session({})
    session.consumers = SimpleNamespace(began={"staging": 20})
    letters, consumer = Worker(session, cast("SerialPublisher", None)), cast("Consumer", Taken("staging"))
    letters.attend(consumer, place("staging"))
    attach = Attach(session, VERSION, letters, cast("SerialPublisher", None))
    api = cast("Management", _Api())
    setting = Setting(
        (), NAMES, api, Readiness(), cast("QueueReads", None), 100, lambda _: False, declare=True, shared=False
    )
    attachment = Attachment(Selector(SelectorKind.QUEUE, "staging"), "inbox", None, SOURCE, accepts_limit=accepted)
    if accepted:
        assert await attach.verify(attachment, consumer, letters, setting)
    else:
        with pytest.raises(NotAttended):
            await attach.verify(attachment, consumer, letters, setting)
    assert session.consumers.began == {"staging": 1}
    assert letters._places[consumer].limit == 1
