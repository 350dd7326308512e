"""The tally of a worker: what it saw, sent and left, and why. It may be read at any time."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from dlx_router.core.fingerprint import fingerprint
from dlx_router.core.letter import Letter
from dlx_router.journal.privacy import Rule, error_of
from dlx_router.redrive.task import Counts

GROUPS: Final = 200
REASONS: Final = 1000  # to stay; each names a queue


class Counters:
    """Of one task. `stays`: why letters that are meant stay; `groups`: of a dry run, (group, failed queue, reason).

    `others`: consumers of the queue at its end.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = Counts(sent=counts.sent, meant=counts.sent)
        self.groups: Counter[tuple[str, str, str]] = Counter()
        self.stays: Counter[str] = Counter()
        self.others = 0

    def begin(self, expected: int, *, anew: bool) -> None:
        """Another look, at so many messages. `anew`: what was sent is forgotten too."""
        sent = 0 if anew else self.counts.sent
        self.counts = Counts(sent=sent, meant=sent, expected=expected)
        self.groups.clear()
        self.stays.clear()

    def saw(self) -> None:
        """One letter, or what cannot be read as one."""
        self.counts = replace(self.counts, seen=self.counts.seen + 1)

    def unreadable(self) -> None:
        """What was seen is no letter."""
        self.counts = replace(self.counts, unreadable=self.counts.unreadable + 1)

    def not_a_letter(self) -> None:
        """What was seen never died."""
        self.counts = replace(self.counts, not_letters=self.counts.not_letters + 1)

    def sent(self) -> None:
        """A letter is settled, told, or in a dry run would be."""
        self.counts = replace(self.counts, sent=self.counts.sent + 1)

    def meant(self) -> None:
        """A letter of this look is one of those that the task is about."""
        self.counts = replace(self.counts, meant=self.counts.meant + 1)

    def stays_though_meant(self, why: str) -> None:
        """A letter that was meant stays after all."""
        self.counts = replace(self.counts, meant=self.counts.meant - 1)
        self.left(why)

    def left(self, why: str = "") -> None:
        """A letter stays; with a reason where it was meant."""
        self.counts = replace(self.counts, left=self.counts.left + 1)
        if why and (why in self.stays or len(self.stays) < REASONS):
            self.stays[why] += 1

    @property
    def why(self) -> str:
        """Why what was looked at and could have been meant is still there; "" where all of it went."""
        parts = [f"{number} stay: {why}" for why, number in self.stays.items()]
        if self.counts.not_letters:
            parts.append(f"not letters: {self.counts.not_letters}, left")
        if self.others:
            parts.append(f"others consume the queue ({self.others}), and may hold letters of it")
        return "; ".join(parts)

    def would_send(self, letter: Letter, group: str) -> None:
        """A dry run means this letter of that group."""
        self.meant()
        self.sent()
        key = (group, letter.failed_queue, letter.reason)
        if key in self.groups or len(self.groups) < GROUPS:
            self.groups[key] += 1


def group_of(letter: Letter, rule: Rule) -> str:
    """The letter's group, as the index says, which knows no more than `rule` lets the journal tell."""
    error: Any = error_of(rule, letter.error)[0]
    return fingerprint(
        letter.vhost,
        letter.failed_queue,
        letter.reason,
        error_type=str(error.get("type") or ""),
        frame=str(error.get("frame") or ""),
        message=str(error.get("message") or ""),
    ).id
