"""What the workers of a session ask of it."""

from collections.abc import Coroutine
from typing import Any, Protocol

from dlx_router.broker.link import Link
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.resources import TargetResources
from dlx_router.service.dispatch.settler import Settler, SettlerOwner


class Owner(SettlerOwner, Protocol):
    """A session, or what stands for one."""

    decider: Decider
    provision: TargetResources
    publish_link: Link

    def settling(self) -> Settler:
        """What settles the jobs of a worker."""

    def read_s(self) -> float:
        """When the bytes that are being worked on were read, on the monotonic clock."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the session's task group."""

    def leave_alone(self, queue: str, why: str) -> None:
        """Give back what came from an attached queue, and take nothing more of it before the router starts anew."""

    def trouble(self, why: str) -> None:
        """Give everything back and start anew."""
