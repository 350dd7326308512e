"""What is known of letters that are nowhere: where the broker still counts messages, and what the journal says."""

import json
from collections import defaultdict
from typing import Final

import pika

from tools.chaos.testbed import VHOST, Scene
from tools.journal import events

COLUMNS: Final = "name,messages_ready,messages_unacknowledged,messages_dlx"
TOLD: Final = ("ts_ms", "kind", "action", "cause", "target", "attempt")


def of_missing(scene: Scene, bodies: set[str]) -> str:
    """For people. Counts are some seconds old. `messages_dlx`: died in a quorum queue, and its worker has them yet."""
    queues = scene.api.get(f"queues/{VHOST}?columns={COLUMNS}").raise_for_status().json()
    holding = [queue for queue in queues if any(many for name, many in queue.items() if name != "name")]
    histories = _histories(scene, bodies)
    lines = [f"{body}: {' · '.join(histories[body]) or 'the journal has nothing'}" for body in sorted(bodies)]
    return "\n".join(["queues that are not empty:", *map(json.dumps, holding), "", *lines]) + "\n"


def _histories(scene: Scene, bodies: set[str]) -> dict[str, list[str]]:
    histories: dict[str, list[str]] = defaultdict(list)
    with pika.BlockingConnection(pika.URLParameters(scene.url)) as link:
        for event in events(link, idle_s=2):
            name = str((event.get("props") or {}).get("message_id", ""))
            if name in bodies:
                histories[name].append(" ".join(str(event[key]) for key in TOLD if event.get(key) is not None))
    return histories
