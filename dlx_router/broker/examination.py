"""Questions of `doctor` to the management API; nothing is changed."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from dlx_router.broker.management import Management

_COLUMNS: Final = "name,type,arguments,policy,effective_policy_definition,exclusive"


class Examination(Management):
    """As Management. All methods raise ManagementError."""

    async def every_queue(self, vhost: str) -> AsyncIterator[Mapping[str, Any]]:
        """Every queue of the vhost: name, type, arguments and effective policy."""
        async for one in self._listed(vhost, ".*", _COLUMNS):
            yield one

    async def disabled_flags(self) -> list[str]:
        """Stable feature flags that are not enabled. Takes an administrator or a monitoring user."""
        found = await self._get("feature-flags")
        return sorted(
            one["name"] for one in found if one.get("state") != "enabled" and one.get("stability") == "stable"
        )

    async def clock_ahead_s(self) -> float | None:
        """How far the broker's clock is ahead of ours, to a second; None where it does not say."""
        await self._asked("GET", "overview")
        return self.ahead_s
