"""How many letters a task means in all, as far as its counts tell. Pure."""

from typing import NamedTuple

from dlx_router.redrive.task import State, Task


class Outlook(NamedTuple):
    """How many letters a task means in all. `is_exact` False: not all of its queue was looked at; it is estimated."""

    letters: int
    is_exact: bool


def outlook(task: Task) -> Outlook:
    """By the part that was looked at; where nothing was yet, all that lies there, so far as the task may take it."""
    counts, spec = task.counts, task.spec
    if task.state is State.DONE:
        return Outlook(counts.sent, is_exact=True)
    unseen = max(counts.expected - counts.seen, 0)
    letters = max(counts.meant, counts.sent)
    letters += round(unseen * (counts.seen - counts.stays) / counts.seen) if counts.seen else 0
    letters = letters if counts.seen else max(task.total, counts.sent)
    most = min([bound for bound in (spec.limit, len(spec.ids)) if bound], default=letters)
    is_exact = bool(counts.seen) and (not unseen or 0 < spec.limit <= counts.meant)
    return Outlook(max(min(letters, most), counts.sent), is_exact)
