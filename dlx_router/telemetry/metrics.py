"""Every metric once: what is counted, and how it looks to Prometheus: names, help, labels, caps that keep labels few.

What the path of a letter counts is a plain int in a dictionary, read only when somebody asks.

The law, at every scrape and for each vhost: deliveries_total = settled_total + given_back_total + in_flight.
Names stay: docs/architecture.md ("Frozen names").
"""

import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from dlx_router import __version__
from dlx_router.core.breaker import Breaker
from dlx_router.core.leases import Ended
from dlx_router.core.words import APPLICATION, Action

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REFUSALS: Final = ("returned", "nacked", "timeout", "closed")
REDRIVEN: Final = ("sent", "came_back", "returned", "nacked")
LEASED: Final = ("received", *Ended, "redelivered")
GIVEN_BACK: Final = ("connection", "drain", "probe", "left", "fifo", "journal")
RELOADS: Final = ("success", "failure")
RESUBSCRIBED: Final = ("not_delivered", "no_consumer", "connection")
SPANS: Final = ("exported", "failed")
WEBHOOKS: Final = ("delivered", "failed", "refused", "expired", "dropped")
PREFIX: Final = "dlx_router_"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER: Final = "__other__"
MAX_QUEUES: Final = 200
Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Key = TypeVar("Key", bound=tuple[str, ...])
Values = Mapping[tuple[str, ...], float]


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


class Histogram:
    """Seconds in fixed buckets; a value on a bound belongs to the bucket below it, as Prometheus has it.

    For the path of a letter: a bisection and two additions, where prometheus_client takes locks.
    """

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, n: int = 1) -> None:
        """Count `n` that took so long each."""
        self._counts[bisect_left(BUCKETS, seconds)] += n
        self.total += seconds * n

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound → how many were not longer, as Prometheus wants them."""
        out, running = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            running += count
            out.append((bound, float(running)))
        return out


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
        self.lease_letters: defaultdict[str, int] = defaultdict(int, dict.fromkeys(LEASED, 0))  # result
        self.spans: defaultdict[str, int] = defaultdict(int, dict.fromkeys(SPANS, 0))  # result
        self.webhooks: defaultdict[str, int] = defaultdict(int, dict.fromkeys(WEBHOOKS, 0))  # result
        self.resubscriptions = {reason: Sources() for reason in RESUBSCRIBED}
        self.background_failures: defaultdict[str, int] = defaultdict(int)  # task
        self.foreign_records: defaultdict[str, int] = defaultdict(int)  # vhost
        self.untrusted_deaths: defaultdict[str, int] = defaultdict(int)  # vhost
        self.state_quarantined: defaultdict[str, int] = defaultdict(int)  # vhost
        self.unreadable: defaultdict[str, int] = defaultdict(int)  # vhost
        self.failed_reads: defaultdict[tuple[str, str], int] = defaultdict(int)  # vhost, queue
        self.missing_headers = 0
        self.shadowed_headers = 0
        self.journal_gaps = 0
        self.condition_errors = 0
        self.waits_cut = 0
        # gauges
        self.broker_connected: dict[str, int] = {}  # vhost
        self.vhosts_ready: Callable[[], dict[str, bool]] = dict
        self.sources_unattended: set[tuple[str, str]] = set()  # vhost, attached queue
        self.revision = ""
        self.policies_refused = 0  # 1: what lies in the folder is not what is in force
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
        self.webhooks_waiting: Callable[[], dict[str, int]] = dict  # endpoint
        self.leases: Callable[[], dict[str, int]] = lambda: {"held": 0}  # state
        self.oldest_letter_timestamp_seconds: Callable[[], dict[str, float]] = dict  # queue
        # histograms
        self.route_seconds = Histogram()
        self.confirm_seconds = Histogram()
        self.release_lateness = Histogram()
        self._registry = CollectorRegistry()
        self._registry.register(Exposition(self))
        ProcessCollector(registry=self._registry)

    def forget(self, vhost: str) -> None:
        """Drop what is known of a vhost that is served no more."""
        self.broker_connected.pop(vhost, None)
        self.sources_unattended -= {key for key in self.sources_unattended if key[0] == vhost}

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


class Exposition(Collector):
    """Reads the counters at each scrape; every label value is text, whatever bytes a name is made of."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Nothing is asked at registration: the callables may not be ready."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series."""
        yield from self._letters()
        yield from self._publishing()
        yield from self._surroundings()

    def _letters(self) -> Iterator[Metric]:
        of = self._metrics
        yield _counter("deliveries", "Deliveries taken from a source.", ("vhost", "source"), _capped(of.deliveries))
        yield _counter("settled", "Deliveries acked, by what was done.", ("vhost", "action"), of.settled)
        yield _counter("given_back", "Deliveries that went back unsettled.", ("vhost", "cause"), of.given_back)
        yield _gauge("in_flight", "Deliveries here and not settled.", ("vhost",), _single(of.in_flight()))
        text = "Messages in a queue of the router's own that wait to be delivered, looked at every 2 s."
        yield _gauge("messages_ready", text, ("vhost", "queue"), of.messages_ready)
        text = "Consumers that stood still and were begun anew; connection: it did not help, and all was."
        yield _counter("consumer_resubscriptions", text, ("vhost", "queue", "reason"), _by_reason(of.resubscriptions))
        yield _counter("decisions", "Decisions.", ("policy", "action", "reason"), _folded(of.decisions))
        text = "Letters with a record that is not obeyed: unsigned, or signed by others or for another vhost."
        yield _counter("foreign_records", text, ("vhost",), _single(of.foreign_records))
        text = "Letters whose x-death is not looked at: they came by no dead-letter exchange that is named."
        yield _counter("untrusted_deaths", text, ("vhost",), _single(of.untrusted_deaths))
        yield _gauge("waiting", "Letters in a rung, looked at every 10 s.", ("rung",), _single(of.waiting()))
        oldest = _oldest(of.oldest_letter_timestamp_seconds())
        text = "Timestamp of a queue's first letter, where the broker tells it."
        yield _gauge("oldest_letter_timestamp_seconds", text, ("queue",), oldest)
        yield _histogram("route_seconds", "From delivery to ack.", of.route_seconds)
        yield _histogram("release_lateness_seconds", "How late a wait ended.", of.release_lateness)

    def _publishing(self) -> Iterator[Metric]:
        of = self._metrics
        yield _counter("publish_refused", "Publishes that were not taken.", ("cause",), _single(of.publish_refused))
        yield _histogram("confirm_seconds", "From delivery to confirm.", of.confirm_seconds)
        text = "Letters that tasks sent, and their fates."
        yield _counter("redrive_letters", text, ("result",), _single(of.redrive_letters))
        text = "Leased letters by how the lease ended; redelivered: it looks like a removed one, and was parked."
        yield _counter("lease_letters", text, ("result",), _single(of.lease_letters))
        yield _gauge("leases", "Letters in the hands of who received them.", ("state",), _single(of.leases()))
        for name, text, number in (
            ("template_missing_headers", "Headers that a routing key asked for in vain.", of.missing_headers),
            ("journal_gaps", "Events that the journal lost.", of.journal_gaps),
            ("condition_errors", "Conditions that failed, and so counted as false.", of.condition_errors),
            ("waits_cut", "Waits that a wall clock would have made longer than was decided.", of.waits_cut),
            ("aliases_shadowed", "Producers' headers replaced by aliases.", of.shadowed_headers),
        ):
            yield _counter(name, text, (), {(): number})

    def _surroundings(self) -> Iterator[Metric]:
        of = self._metrics
        text = "State of a queue's breaker: 0 closed, 1 half-open, 2 open."
        yield _gauge("breaker_state", text, ("queue",), _breakers(of.breakers()))
        text = "Thresholds that policies set for alerts: letters, seconds, letters a second."
        yield _gauge("policy_threshold", text, ("policy", "kind"), of.thresholds)
        text = "Letters in the queues where dead letters of a policy end that sets `alert`."
        yield _gauge("policy_letters", text, ("policy",), _of_policies(of.policy_letters, sum))
        text = "When the oldest of these letters came there, by the index; without it its timestamp property."
        oldest = _of_policies({**of.policy_oldest, **of.index_oldest}, min)
        yield _gauge("policy_oldest_letter_timestamp_seconds", text, ("policy",), oldest)
        yield _gauge("broker_connected", "1 while a session is up.", ("vhost",), _single(of.broker_connected))
        text = "1 while nothing keeps the router from working in the vhost; /readyz says what does."
        yield _gauge("vhost_ready", text, ("vhost",), _single(of.vhosts_ready()))
        text = "1 for an attached queue that is not consumed; /readyz says why."
        yield _gauge("source_unattended", text, ("vhost", "queue"), dict.fromkeys(of.sources_unattended, 1))
        revision = {(of.revision,): 1} if of.revision else {}
        yield _gauge("policy_info", "The revision of the policies in force.", ("revision",), revision)
        yield _counter("reloads", "Policies read again.", ("result",), _single(of.reloads))
        text = "1 while the policies that lie there are refused, and others are in force."
        yield _gauge("policies_refused", text, (), {(): of.policies_refused})
        text = "Spans for OpenTelemetry, by what became of them."
        yield _counter("spans", text, ("result",), _single(dict(of.spans)))
        text = "Messages to webhooks, by what became of them; failed and refused: a try, which is repeated."
        yield _counter("webhooks", text, ("result",), _single(dict(of.webhooks)))
        text = "Messages that a webhook has not taken yet."
        yield _gauge("webhooks_waiting", text, ("webhook",), _single(of.webhooks_waiting()))
        text = "Events of the journal that the index has read, by whether a router signed them."
        yield _counter("index_events", text, ("vhost", "signature"), of.index_signatures())
        text = "Messages in the state queue that no router wrote, moved to quarantine."
        yield _counter("state_quarantined", text, ("vhost",), _single(dict(of.state_quarantined)))
        text = "Ends of tasks beside the letters by an error of their own; each was begun again."
        yield _counter("background_failures", text, ("task",), _single(dict(of.background_failures)))
        text = "Messages that no AMQP 0-9-1 client can be given, moved to quarantine by AMQP 1.0."
        yield _counter("unreadable", text, ("vhost",), _single(dict(of.unreadable)))
        text = "Deliveries that a read held as RabbitMQ ended its connection (541): each counts to the delivery limit."
        yield _counter("read_failed_deliveries", text, ("vhost", "queue"), _capped(of.failed_reads))
        text = "Tasks of the event loop; what grows here for hours is a leak."
        yield _gauge("asyncio_tasks", text, (), {(): of.asyncio_tasks()})
        build = {(__version__, platform.python_version()): 1}
        yield _gauge("build_info", "What runs here.", ("version", "python"), build)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=labels), values)


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=labels), values)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, text)
    family.add_metric((), buckets=histogram.buckets(), sum_value=histogram.total)
    return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Key, float]) -> Metric:
    for key, value in values.items():
        family.add_metric([_text(part) for part in key], value)
    return family


def _text(label: str) -> str:
    """A queue's name need not be text; one that is not may not cost all metrics."""
    return label.encode(errors="backslashreplace").decode()


def _single(values: Mapping[str, float]) -> Values:
    return {(key,): value for key, value in values.items()}


def _of_policies(values: Mapping[tuple[str, str], float], fold: Callable[[list[float]], float]) -> Values:
    """By (vhost, policy) → by policy."""
    by_policy: dict[tuple[str, ...], list[float]] = {}
    for (_, policy), value in values.items():
        by_policy.setdefault((policy,), []).append(value)
    return {policy: fold(several) for policy, several in by_policy.items()}


def _capped(values: Mapping[tuple[str, str], int]) -> Values:
    """The first queues keep their names for ever, so that no counter falls; the rest are one per vhost."""
    out: dict[tuple[str, ...], float] = {}
    for at, ((vhost, queue), count) in enumerate(values.items()):
        key = (vhost, queue if at < MAX_QUEUES else OTHER)
        out[key] = out.get(key, 0) + count
    return out


def _by_reason(counts: Mapping[str, Mapping[tuple[str, str], int]]) -> Values:
    """As `_capped`, of each reason."""
    return {(*source, reason): count for reason, values in counts.items() for source, count in _capped(values).items()}


def _folded(values: Mapping[tuple[str, str, str], int]) -> Values:
    """`application:NAME` is written by applications, so there may be any number: one reason for all."""
    out: dict[tuple[str, ...], float] = {}
    for (policy, action, reason), count in values.items():
        key = (policy, action, APPLICATION if reason.startswith(f"{APPLICATION}:") else reason)
        out[key] = out.get(key, 0) + count
    return out


def _breakers(states: Mapping[str, str]) -> Values:
    """The queues that are worst keep their names; the others are one, as bad as the worst of them."""
    out: dict[tuple[str, ...], float] = {}
    by_state = sorted(states.items(), key=lambda item: (-Breaker.badness(item[1]), item[0]))
    for at, (queue, state) in enumerate(by_state):
        out.setdefault((queue if at < MAX_QUEUES else OTHER,), Breaker.badness(state))
    return out


def _oldest(values: Mapping[str, float]) -> Values:
    """The queues with the oldest letters keep their names."""
    out: dict[tuple[str, ...], float] = {}
    for at, (queue, seconds) in enumerate(sorted(values.items(), key=lambda item: (item[1], item[0]))):
        out.setdefault((queue if at < MAX_QUEUES else OTHER,), seconds)
    return out
