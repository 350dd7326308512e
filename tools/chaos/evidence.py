"""What is known of letters that are nowhere: where the broker still counts messages, and what the journal says."""

import json
from collections import defaultdict
from typing import Any, Final

import pika

from dlx_router.journal.reading import lines
from tools.chaos.testbed import VHOST, Scene
from tools.polling import stream

JOURNAL: Final = "dlx-router.journal"
COLUMNS: Final = "name,messages_ready,messages_unacknowledged,messages_dlx"
TOLD: Final = ("ts_ms", "kind", "action", "cause", "target", "attempt")


def of_missing(scene: Scene, bodies: set[str]) -> str:
    """For people. `messages_dlx` is what died in a quorum queue and its own worker did not hand over."""
    queues = scene.api.get(f"queues/{VHOST}?disable_stats=false&columns={COLUMNS}").raise_for_status().json()
    holding = [one for one in queues if any(many for name, many in one.items() if name != "name")]
    events = _events(scene, bodies)
    said = [f"{body}: {' · '.join(events[body]) or 'the journal has nothing'}" for body in sorted(bodies)]
    return "\n".join(["queues that are not empty:", *map(json.dumps, holding), "", *said]) + "\n"


def _events(scene: Scene, bodies: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    with pika.BlockingConnection(pika.URLParameters(scene.url)) as link:
        for _, body in stream(link, JOURNAL, idle_s=2):
            for line in lines(body):
                event: dict[str, Any] = json.loads(line)
                name = str((event.get("props") or {}).get("message_id", ""))
                if name in bodies:
                    found[name].append(" ".join(str(event[key]) for key in TOLD if event.get(key) is not None))
    return found
