"""Questions of `doctor` to the management API; nothing is changed."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from dlx_router.broker.management import Management
from dlx_router.broker.management_words import ASK, ManagementError, part, shaped

_COLUMNS: Final = "name,type,arguments,policy,effective_policy_definition,exclusive,auto_delete,leader,members,messages"


class Examination(Management):
    """As Management. All methods raise ManagementError."""

    async def every_queue(self, vhost: str) -> AsyncIterator[Mapping[str, Any]]:
        """Every queue of the vhost: name, type, arguments and effective policy."""
        async for queue in self._listed(vhost, ".*", _COLUMNS):
            yield queue

    @shaped
    async def disabled_flags(self) -> list[str]:
        """Stable feature flags that are not enabled. Takes an administrator or a monitoring user."""
        flags = await self._get("feature-flags")
        return sorted(
            flag["name"] for flag in flags if flag.get("state") != "enabled" and flag.get("stability") == "stable"
        )

    @shaped
    async def queue_limit(self, vhost: str) -> int | None:
        """How many queues the vhost may have (max-queues); None without such a limit."""
        limits = await self._get(f"vhost-limits/{part(vhost)}")
        return next((row["value"]["max-queues"] for row in limits if "max-queues" in row["value"]), None)

    async def alarms(self) -> list[tuple[str, str]]:
        """Node and resource (memory, disk, file_descriptor_limit) of each alarm in effect in the cluster."""
        where, answer = await self._asked("GET", "health/checks/alarms")
        if answer.is_success:
            return []
        try:
            alarms = answer.json()["alarms"]  # 503; any other refusal has none
            return [(str(alarm["node"]), str(alarm["resource"])) for alarm in alarms]
        except (LookupError, TypeError, ValueError) as error:
            raise ManagementError(f"{where}: alarms could not be asked for: {type(error).__name__}; {ASK}") from None

    @shaped
    async def clock_ahead_s(self) -> float | None:
        """How far the broker's clock is ahead of ours, to a second; None where it does not say."""
        await self._asked("GET", "overview")
        return self.ahead_s
