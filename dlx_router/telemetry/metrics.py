"""Every metric once. What the path of a letter counts is a plain int in a dictionary, read only when somebody asks.

The law, at every scrape and for each vhost: deliveries_total = settled_total + given_back_total + in_flight.
Names stay: docs/architecture.md ("Frozen names").
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from dlx_router.core.words import Action
from dlx_router.telemetry.exposition import MAX_QUEUES, OTHER, Exposition
from dlx_router.telemetry.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REFUSALS: Final = ("returned", "nacked", "timeout", "closed")
REDRIVEN: Final = ("sent", "came_back", "returned", "nacked")
GIVEN_BACK: Final = ("connection", "drain", "probe", "left", "fifo", "journal")
RELOADS: Final = ("success", "failure")
RESUBSCRIBED: Final = ("not_delivered", "no_consumer", "connection")
SPANS: Final = ("exported", "failed", "dropped")


class Sources(defaultdict[tuple[str, str], int]):
    """Counts by (vhost, queue). Queues come and go: those that the exposition does not name are put together."""

    def __init__(self) -> None:
        super().__init__(int)

    def __missing__(self, key: tuple[str, str]) -> int:
        if len(self) >= 2 * MAX_QUEUES:
            for vhost, queue in [*self][MAX_QUEUES:]:
                count = self.pop((vhost, queue))
                self[vhost, OTHER] = self.get((vhost, OTHER), 0) + count
        return super().__missing__(key)


class Metrics:
    """What the router counts: `counts[key] += 1`, keys being label values in the order that /metrics shows.

    What others know better is a callable that is asked at each scrape. `Histogram`s are observed.
    """

    def __init__(self) -> None:
        # counters
        self.deliveries = Sources()
        self.settled: defaultdict[tuple[str, str], int] = defaultdict(int)  # vhost, action
        self.given_back: defaultdict[tuple[str, str], int] = defaultdict(int)  # vhost, cause
        self.decisions: defaultdict[tuple[str, str, str], int] = defaultdict(int)  # policy, action, reason
        self.publish_refused: defaultdict[str, int] = defaultdict(int, dict.fromkeys(REFUSALS, 0))  # cause
        self.reloads: defaultdict[str, int] = defaultdict(int, dict.fromkeys(RELOADS, 0))  # result
        self.redrive_letters: defaultdict[str, int] = defaultdict(int, dict.fromkeys(REDRIVEN, 0))  # result
        self.spans: defaultdict[str, int] = defaultdict(int, dict.fromkeys(SPANS, 0))  # result
        self.resubscriptions = {reason: Sources() for reason in RESUBSCRIBED}
        self.background_failures: defaultdict[str, int] = defaultdict(int)  # task
        self.foreign_records: defaultdict[str, int] = defaultdict(int)  # vhost
        self.untrusted_deaths: defaultdict[str, int] = defaultdict(int)  # vhost
        self.state_quarantined: defaultdict[str, int] = defaultdict(int)  # vhost
        self.unreadable: defaultdict[str, int] = defaultdict(int)  # vhost
        self.missing_headers = 0
        self.shadowed_headers = 0
        self.journal_gaps = 0
        self.condition_errors = 0
        self.waits_cut = 0
        self.clock_jumps = 0
        # gauges
        self.broker_connected: dict[str, int] = {}  # vhost
        self.revision = ""
        self.policy_drift: dict[str, int] = {}  # vhost
        self.messages_ready: dict[tuple[str, str], int] = {}  # vhost, own queue
        self.in_flight: Callable[[], dict[str, int]] = dict  # vhost
        self.breakers: Callable[[], dict[str, str]] = dict  # queue → state
        self.thresholds: dict[tuple[str, str], float] = {}  # policy, kind
        self.policy_letters: dict[tuple[str, str], int] = {}  # vhost, policy
        self.policy_oldest: dict[tuple[str, str], float] = {}  # vhost, policy; as the broker tells
        self.index_oldest: dict[tuple[str, str], float] = {}  # vhost, policy; as the index tells
        self.index_signatures: Callable[[], dict[tuple[str, str], int]] = dict  # vhost, signature
        self.waiting: Callable[[], dict[str, int]] = dict  # rung
        self.asyncio_tasks: Callable[[], int] = int
        self.oldest_letter_timestamp_seconds: Callable[[], dict[str, float]] = dict  # queue
        # histograms
        self.route_seconds = Histogram()
        self.confirm_seconds = Histogram()
        self.release_lateness = Histogram()
        self._registry = CollectorRegistry()
        self._registry.register(Exposition(self))
        ProcessCollector(registry=self._registry)

    def serve(self, vhost: str, sources: Iterable[str]) -> None:
        """Create the series of a vhost at zero: a rate is only seen from the second value on."""
        for source in sources:
            self.deliveries[vhost, source] += 0
            for counts in self.resubscriptions.values():
                counts[vhost, source] += 0
        for action in Action:
            self.settled[vhost, action.value] += 0
        for cause in GIVEN_BACK:
            self.given_back[vhost, cause] += 0
        self.foreign_records[vhost] += 0
        self.untrusted_deaths[vhost] += 0
        self.state_quarantined[vhost] += 0
        self.unreadable[vhost] += 0
        self.broker_connected.setdefault(vhost, 0)

    def text(self) -> bytes:
        """The exposition, as CONTENT_TYPE says."""
        return generate_latest(self._registry)
