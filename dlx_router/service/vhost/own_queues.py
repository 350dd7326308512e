"""The guard: nobody's policy may shorten, expire or redirect our own queues, and no argument of somebody else either.

Arguments cannot defend a queue against a catch-all policy (50 confirmed, 5 kept), so the effective policies are read
from the management API at start and each minute. While one is harmful, nothing is consumed. Likewise of exchanges: with
an alternate exchange what nothing is bound for is confirmed instead of returned, and lies where nobody looks for it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dlx_router.broker.control import CONFIRMS_S, time_to_confirm
from dlx_router.broker.declared import Standing, compared, gone_meanwhile
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Lost, Topology, TopologyError
from dlx_router.core.names import Names
from dlx_router.service.vhost.session import Trouble
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 60.0
AGAIN_S: Final = 5.0  # where the session began without an answer
MOST_TOLD: Final = 5
NOW: Final = (
    "move its messages elsewhere and delete it, or take the binding away, and the router declares it as it must be; "
    "or give the router another PREFIX"
)


class OwnQueues:
    """Checks own queues. What nobody tells is not verified: that is noted, and is no refusal."""

    def __init__(self, management: Management | None, names: Names, readiness: Readiness) -> None:
        self._management = management
        self._names = names
        self._readiness = readiness
        self._harmful: dict[str, str] = {}  # vhost → policies
        self._foreign: dict[str, str] = {}  # vhost → what was declared otherwise
        self._verified: dict[str, frozenset[str]] = {}  # vhost → what the last look that was answered gave
        self._unconfirmed: set[str] = set()
        self._unanswered: set[str] = set()  # the last look asked who does not answer

    async def begin(self, vhost: str, topology: Topology) -> frozenset[str]:
        """As `check`, for a session that is to begin: what was verified before is believed where nobody answers soon.

        The look is repeated at once beside the session, which ends where that finds harm.
        """
        before = self._verified.get(vhost)
        try:
            async with time_to_confirm(known=before is not None):
                return await self.check(vhost, topology)
        except TimeoutError:
            if before is None:
                raise
        # Something harmful was seen, or a policy that comes just now: then nothing is believed.
        changes = self._management is not None and vhost in self._management.disagreeing
        if changes or self._harmful.get(vhost) or self._foreign.get(vhost):
            return await self.check(vhost, topology)
        self._unconfirmed.add(vhost)
        fate = "they were as they should be before; letters go on, and it is asked again at once"
        log.warning("own_queues.unconfirmed", vhost=vhost, seconds=CONFIRMS_S, fate=fate)
        return before

    async def check(self, vhost: str, topology: Topology | None = None) -> frozenset[str]:
        """→ the queues from which what is rejected surely falls into quarantine.

        Raises Trouble that names queue, policy and keys, or argument and value, where letters would be lost.
        """
        self._unanswered.discard(vhost)
        await self._policies(vhost)
        if self._harmful.get(vhost):  # at once: letters that come while the rest is asked would be lost
            raise self._trouble(vhost)
        catching = await self._declared(vhost, topology)
        if self._foreign.get(vhost):
            raise self._trouble(vhost)
        if vhost not in self._unanswered:
            self._verified[vhost] = catching
        return catching

    def _trouble(self, vhost: str) -> Trouble:
        self._verified.pop(vhost, None)
        texts = filter(None, (self._harmful.get(vhost), self._foreign.get(vhost)))
        return Trouble(f"own queues and exchanges are not safe: {'; '.join(texts)}")

    async def _policies(self, vhost: str) -> None:
        reason, note = f"own queues {vhost}", f"policies {vhost}"
        if self._management is None:
            self._readiness.note(note, "own queues and exchanges: policies not verified (no MANAGEMENT_URL)")
            return
        try:
            problems = await self._management.check_own_queues(vhost, self._names)
            problems += await self._management.check_own_exchanges(vhost, self._names)
        except ManagementError as error:  # what was harmful is so until it is seen to be gone
            self._unanswered.add(vhost)
            self._readiness.note(note, f"own queues and exchanges: policies not verified ({error})")
            return
        self._readiness.drop_note(note)
        self._report(reason, self._harmful, vhost, "; ".join(str(problem) for problem in problems))

    async def _declared(self, vhost: str, topology: Topology | None) -> frozenset[str]:
        """Somebody may have declared our queues before us."""
        note = f"declared {vhost}"
        stands = await self._standing(vhost, topology)
        if isinstance(stands, str):
            where = f"own queues in vhost {vhost!r}: arguments not verified ({stands})"
            self._readiness.note(note, f"{where}; what cannot be published is not rejected either")
            return frozenset()
        odd, catching = compared(self._names, stands)
        harmful = [difference for difference in odd if difference.harmful]
        bad = [*map(str, harmful)]
        listed = "; ".join(bad[:MOST_TOLD]) + (f" and {len(bad) - MOST_TOLD} more" if len(bad) > MOST_TOLD else "")
        now = NOW + gone_meanwhile(self._names, harmful)
        text = f"in vhost {vhost!r} {listed}; somebody else declared that: {now}" if bad else ""
        self._report(f"foreign {vhost}", self._foreign, vhost, text)
        harmless = "; ".join(str(difference) for difference in odd if not difference.harmful)
        if harmless:
            self._readiness.note(note, f"in vhost {vhost!r} {harmless}: no letter is lost by that")
        else:
            self._readiness.drop_note(note)
        return catching

    async def _standing(self, vhost: str, topology: Topology | None) -> Standing | str:
        """What stands there, or why nobody tells."""
        why = "no MANAGEMENT_URL"
        if self._management is not None:
            try:
                return await self._management.standing(vhost, self._names)
            except ManagementError as error:
                why = str(error)
                self._unanswered.add(vhost)
        try:
            standing = None if topology is None else await topology.standing()
        except Lost:
            raise
        except TopologyError as error:
            return f"{why}; {error}"
        return f"{why}, DECLARE=never" if standing is None else standing

    def _report(self, reason: str, into: dict[str, str], vhost: str, text: str) -> None:
        if text:
            into[vhost] = text
            self._readiness.set(reason, text)
        else:
            into.pop(vhost, None)
            self._readiness.clear(reason)

    async def watch(
        self, vhost: str, trouble: Callable[[str], None], topology: Topology, catching: Callable[[frozenset[str]], None]
    ) -> None:
        """Check each minute; a policy that appears ends the session, so that nothing more is consumed.

        `catching`: hears from which queues what is rejected falls into quarantine, where that was answered.
        """
        while True:
            await asyncio.sleep(AGAIN_S if vhost in self._unconfirmed else EVERY_S)
            try:
                caught = await self.check(vhost, topology)
                if vhost not in self._unanswered:
                    catching(caught)
                    if vhost in self._unconfirmed:
                        self._unconfirmed.discard(vhost)
                        log.info("own_queues.confirmed", vhost=vhost)
            except Trouble as error:
                trouble(str(error))
            except TopologyError:
                continue  # what was seen before holds until somebody tells
