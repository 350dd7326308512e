"""Reload: policies that changed come into force while letters are on their way, or nothing changes at all.

Everything that can fail (read, parse, compile, resolve, declare what they need, build what each vhost judges by) is
done before anything in force is touched. Contents are compared every second; a change is read once it has stayed the
same for two looks, so that files which are being written are not read by halves. SIGHUP reads at once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from dlx_router.broker.topology import TopologyError
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, fingerprint, load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet, Selector, SelectorKind
from dlx_router.core.target import dead_letter_queue
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.routes import Resource, dead_letter_resource
from dlx_router.service.sources.attach import Wanted
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0  # after a refusal by the broker, which may have been healed
TRIES: Final = 5
SHOWN: Final = 20
MAX_FORESEEN: Final = 500  # each costs some round trips; beyond, letters find out
NOTE: Final = "policies"


class Revision(NamedTuple):
    """What a reload brings to a vhost, all of it built. `resting`: the pattern of queues where letters rest."""

    in_force: InForce
    sources: tuple[Wanted, ...]
    resting: str


class Unsteady(Exception):
    """The files change faster than they can be read."""


def foreseen(policies: PolicySet, vhost: str, kinds: Mapping[str, str]) -> Iterator[Resource]:
    """What letters of queues that policies name exactly will need of the broker; all others is seen to on demand.

    `kinds`: the types of queues, where policies ask for them.
    """
    resources: dict[Resource, None] = {}
    for policy in policies.policies:
        if policy.vhost in {None, vhost}:
            for reason in ("rejected", *policy.on):
                resources |= dict.fromkeys(_needs(policies, vhost, policy.selector, reason, kinds))
    return islice(resources, MAX_FORESEEN)


def _needs(
    policies: PolicySet, vhost: str, selector: Selector, reason: str, kinds: Mapping[str, str]
) -> Iterator[Resource]:
    if selector.kind is not SelectorKind.QUEUE:
        return
    queue = selector.text
    policy = policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=kinds.get(queue))
    if policy is None or policy.discard:
        return
    exchange = policy.dead_letter_exchange or ""
    if policy.auto_create:
        yield dead_letter_resource(policy, dead_letter_queue(policy, queue), exchange, queue)
    elif exchange:
        yield ("exchange", exchange)


class Reloader:
    """Watches one folder, and reads it at once when `asked` is set.

    `prepare(loaded)` may fail; what it returns cannot, and puts them into force.
    """

    def __init__(  # noqa: PLR0913 - what it watches, and what it tells
        self,
        *,
        folder: Path,
        names: Names,
        vhosts: Sequence[str],
        current: LoadedPolicies,
        prepare: Callable[[LoadedPolicies], Awaitable[Callable[[], None]]],
        metrics: Metrics,
        readiness: Readiness,
        asked: asyncio.Event,
    ) -> None:
        self._folder, self._names, self._vhosts = folder, names, vhosts
        self._current = current
        self._prepare = prepare
        self._metrics, self._readiness = metrics, readiness
        self._asked = asked
        self._again_s = float("inf")

    async def watch(self) -> None:
        """Look until cancelled."""
        tried = last = self._current.policies.revision
        while True:
            asked = await self._asked_within(LOOK_S)
            seen = await asyncio.to_thread(fingerprint, self._folder)
            steady, last = seen == last, seen
            if asked or (steady and seen != tried) or time.monotonic() > self._again_s:
                tried = seen
                await self._reload()

    async def _asked_within(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _reload(self) -> None:
        self._again_s = float("inf")
        try:
            loaded = await self._loaded()
            swap = await self._prepare(loaded)
        except PolicyErrors as error:
            self._refused([str(finding) for finding in error.findings])
        except Unsteady as error:
            self._refused([str(error)])
        except (TopologyError, TimeoutError, OSError) as error:
            self._again_s = time.monotonic() + AGAIN_S
            self._refused([f"what the new policies need cannot be had: {str(error) or 'no answer in time'}"])
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not end a router that works
            self._refused([f"the policies could not be read: {error!r}"])
        else:
            swap()
            self._in_force(loaded)

    async def _loaded(self) -> LoadedPolicies:
        """All files as they were at one moment: what changes under our hands is read again."""
        for _ in range(TRIES):
            loaded = await asyncio.to_thread(load_policies, self._folder, self._names)
            if await asyncio.to_thread(fingerprint, self._folder) == loaded.policies.revision:
                loaded.require_served(self._vhosts)
                return loaded
        raise Unsteady(f"{self._folder}: changes while it is read; it is read again when it rests")

    def _in_force(self, loaded: LoadedPolicies) -> None:
        before, self._current = self._current, loaded
        self._metrics.revision = loaded.policies.revision
        self._metrics.reloads["success"] += 1
        self._metrics.policies_refused = 0
        self._readiness.drop_note(NOTE)
        for warning in loaded.warnings:
            log.warning(
                "policies.warning", code=warning.code, file=warning.file, line=warning.line, problem=warning.message
            )
        log.info(
            "policies.reloaded",
            revision=loaded.policies.revision,
            before=before.policies.revision,
            policies=len(loaded.policies.policies),
            fate="letters that come from now on are judged by them; those in flight and waiting keep their decision",
        )

    def _refused(self, errors: Sequence[str]) -> None:
        revision = self._current.policies.revision
        self._metrics.reloads["failure"] += 1
        self._metrics.policies_refused = 1
        fate = f"revision {revision} stays in force"
        self._readiness.note(NOTE, f"policies changed and were refused, {fate}: {errors[0]}")
        log.error("policies.refused", errors=list(errors[:SHOWN]), more=max(len(errors) - SHOWN, 0), fate=fate)
