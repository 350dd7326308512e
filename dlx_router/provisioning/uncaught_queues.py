"""DLX201: queues whose dead letters no policy can catch, and which of them reach the router all the same.

One finding and one text: plan, apply, doctor and lint say what is said here. It ends where its own advice was followed.
"""

from collections.abc import Iterable, Iterator

from dlx_router.broker.administration import Snapshot, Standing
from dlx_router.config.policy_files.attachments import INBOX, Attachment
from dlx_router.core.names import Names
from dlx_router.provisioning.broker_rules import merged
from dlx_router.provisioning.routing import Routes

KEY = "dead-letter-routing-key"


def uncaught(
    uncatchable: Iterable[tuple[Standing, str]], attachments: Iterable[Attachment], snapshot: Snapshot, names: Names
) -> Iterator[tuple[Standing, str]]:
    """Each queue whose dead letters no attachment brings, with what is to be said of it.

    `uncatchable`: queues and the exchange that their argument names.
    """
    here, routes = [attachment for attachment in attachments if _is_inbox(attachment, snapshot.vhost)], Routes(snapshot)
    for queue, target in uncatchable:
        ends = _ends(queue, target, snapshot, routes)
        naming = [attachment for attachment in here if target in (attachment.dead_letter_exchanges or ())]
        if not any(attachment.selector.fits(end) for attachment in naming for end in ends):
            yield queue, _message(queue, target, ends, naming, names)


def _is_inbox(attachment: Attachment, vhost: str) -> bool:
    return attachment.mode == INBOX and attachment.vhost in {None, vhost}


def _ends(queue: Standing, target: str, snapshot: Snapshot, routes: Routes) -> frozenset[str]:
    """The queues that its dead letters may reach: by the key that is set for it, else by any."""
    key = merged(queue, snapshot).get(KEY)
    if isinstance(key, str):
        return routes.queues(target, key)
    return routes.queues(target, None) - {queue.name}


def _message(queue: Standing, target: str, ends: frozenset[str], naming: list[Attachment], names: Names) -> str:
    place = next(iter(ends)) if len(ends) == 1 else "…"
    message = (
        f'queue {queue.name}: its argument x-dead-letter-exchange names "{target}", and no policy changes an argument; '
        f"attach the queue where its dead letters end (attachments: - {{queue: {place}, "
        f'dead-letter-exchanges: "{target}"}}), or delete the queue and declare it without the argument, or with '
        f"{names.inbox}"
    )
    if naming:
        message += f" (attached by that exchange is {naming[0].queue}, where none of them end: no binding leads there)"
    return message
