"""What happened in a vhost since the last look, for those who are to be told: looks in, notices out. No clock, no I/O.

Groups and letters are as the index has them, tasks as the leader has them, breakers as this router has them.
Guarantees: what was there before the first look is no news; a group that opened, or came back, is told once however
often it is looked at, and also where an earlier leader had no time to tell it, for a day.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.breaker import Breaker
from dlx_router.core.notices import Notice, shortened
from dlx_router.index.reader import MOST_LOOKS, GroupLook
from dlx_router.redrive.task import Kind, State, Task, outlook
from dlx_router.webhooks.outbox import GIVE_UP_MS

OVERLAP_MS: Final = 60_000  # events come nearly in the order of their times
_STATES: Final = {State.STOPPED: "redrive.halted", State.DONE: "redrive.finished"}


class VhostEvents:
    """Of one vhost that we lead. `began_ms`: what is older is no news."""

    def __init__(self, vhost: str, began_ms: int) -> None:
        self.vhost, self.began_ms = vhost, began_ms
        self.since_ms = 0  # from when on groups are to be looked at
        self.newest = 0  # number of the group that came to the index last: what comes late may be older than that
        self._notified: Bounded[str, bool] = Bounded(most=50_000, most_bytes=16 * MIB)
        self._parked: Mapping[tuple[str, str], int] | None = None
        self._open: set[str] = set()

    def _is_new(self, key: str) -> bool:
        is_new = key not in self._notified
        self._notified[key] = True
        return is_new

    def _floor_ms(self, now_ms: int) -> int:
        return max(self.began_ms, now_ms - GIVE_UP_MS)

    def groups(self, looks: Sequence[GroupLook], now_ms: int) -> Iterator[Notice]:
        """Of the groups that had a death since `since_ms` or came after `newest`, in the order of their last deaths."""
        floor = self._floor_ms(now_ms)
        self._advance(looks, now_ms)
        for group in looks:
            if group.ignored:
                continue
            if group.first_ms >= floor and self._is_new(group.id):
                yield self._of_group("group.opened", group, group.id)
            returned = f"{group.id} {group.resolved_ms}"
            if group.resolved_ms and group.last_ms > max(group.resolved_ms, floor) and self._is_new(returned):
                yield self._of_group("group.returned", group, returned)

    def _advance(self, looks: Sequence[GroupLook], now_ms: int) -> None:
        """Where the next look begins: where this one saw all, not ahead of the clock, whatever times events have."""
        if looks:
            last, is_all = looks[-1].last_ms, len(looks) < MOST_LOOKS
            if is_all:
                self.since_ms = min(max(self.since_ms, min(last, now_ms) - OVERLAP_MS), now_ms)
            else:
                self.since_ms = max(self.since_ms + 1, last)
            self.newest = max(self.newest, *(group.number for group in looks))

    def _of_group(self, kind: str, group: GroupLook, key: str) -> Notice:
        error = {name: shortened(getattr(group, name)) for name in ("reason", "error_type", "message", "frame")}
        times = {"first_ms": group.first_ms, "last_ms": group.last_ms}
        item = {"group": group.id, "failed_queue": group.failed_queue, **error, "deaths": group.deaths, **times}
        return Notice(kind, self.vhost, key, (group.failed_queue,), item)

    def parked(self, counts: Mapping[tuple[str, str], int]) -> Iterator[Notice]:
        """More letters of a group lie in parking than at the last look; the first look only counts."""
        before, self._parked = self._parked, counts
        for (queue, group), letters in counts.items() if before is not None else ():
            if (more := letters - (before or {}).get((queue, group), 0)) > 0:
                item = {"failed_queue": queue, "group": group, "letters": more}
                yield Notice("letter.parked", self.vhost, group, (queue,), item)

    def forget_counts(self) -> None:
        """The index is being made anew: what it counts meanwhile says nothing, and its numbers begin anew."""
        self._parked, self.newest = None, 0

    def breakers(self, states: Mapping[str, str], steady_ms: int) -> Iterator[Notice]:
        """A breaker that tries, half-open, is told when it is closed or open again."""
        opened = {queue for queue, state in states.items() if state == Breaker.OPEN}
        closed = {queue for queue in self._open if states.get(queue, Breaker.CLOSED) == Breaker.CLOSED}
        for kind, queues in (("breaker.opened", opened - self._open), ("breaker.closed", closed)):
            for queue in sorted(queues):
                yield Notice(kind, self.vhost, f"{queue} {steady_ms}", (queue,), {"failed_queue": queue})
        self._open = (self._open | opened) - closed

    def tasks(self, tasks: Iterable[Task], now_ms: int) -> Iterator[Notice]:
        """Tasks that ended by themselves. What a person cancelled or paused is known to a person."""
        floor = self._floor_ms(now_ms)
        for task in tasks:
            kind, spec = _STATES.get(task.state), task.spec
            if kind is None or spec.dry_run or spec.kind is Kind.EXPORT or task.changed_ms < floor:
                continue
            key = f"{task.id} {task.change}"
            if self._is_new(key):
                queues = (spec.queue, *dict.fromkeys(str(group.get("failed_queue")) for group in task.groups))
                counts = {"sent": task.counts.sent, "meant": outlook(task).letters}
                item = {
                    "task": task.id,
                    "kind": str(spec.kind),
                    "queue": spec.queue,
                    "why": shortened(task.why),
                    **counts,
                }
                yield Notice(kind, self.vhost, key, queues, item)
