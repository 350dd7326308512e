"""Every metric once. Counters of the hot path are plain ints, read at scrape time.

The law, at every scrape: deliveries_total = settled_total + given_back_total + in_flight.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from dlx_router import __version__
from dlx_router.core.words import Action

PREFIX: Final = "dlx_router_"
OTHER: Final = "__other__"
MAX_QUEUES: Final = 200
REFUSALS: Final = ("returned", "nacked", "timeout", "closed")
GIVEN_BACK: Final = ("connection", "drain")
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Histogram:
    """Seconds in fixed buckets; a list and a bisection, because it runs for every letter."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        out, running = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            running += count
            out.append((bound, float(running)))
        return out


class Metrics(Collector):
    """What the router counts. Keys of the dictionaries are label values in the order of INTERFACES."""

    def __init__(self) -> None:
        self.deliveries: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.settled: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.given_back: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.decisions: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.publish_refused: defaultdict[str, int] = defaultdict(int, dict.fromkeys(REFUSALS, 0))
        self.in_flight: Callable[[], dict[str, int]] = dict
        self.waiting: Callable[[], dict[str, int]] = dict
        self.broker_connected: dict[str, int] = {}
        self.route_seconds = Histogram()
        self.confirm_seconds = Histogram()
        self.release_lateness = Histogram()
        self.revision = ""
        self.missing_headers = 0
        self.shadowed_headers = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def serve(self, vhost: str, sources: Iterable[str]) -> None:
        """Create the series of a vhost at zero."""
        for source in sources:
            self.deliveries[vhost, source] += 0
        for action in Action:
            self.settled[vhost, action.value] += 0
        for cause in GIVEN_BACK:
            self.given_back[vhost, cause] += 0
        self.broker_connected.setdefault(vhost, 0)

    def text(self) -> bytes:
        """The exposition, text format 0.0.4."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All series; called at each scrape."""
        yield _counter("deliveries", "Deliveries taken from a source.", ("vhost", "source"), _capped(self.deliveries))
        yield _counter("settled", "Deliveries acked, by what was done.", ("vhost", "action"), self.settled)
        yield _counter("given_back", "Deliveries that went back unsettled.", ("vhost", "cause"), self.given_back)
        in_flight = {(vhost,): count for vhost, count in self.in_flight().items()}
        yield _gauge("in_flight", "Deliveries here and not settled.", ("vhost",), in_flight)
        yield _counter("decisions", "Decisions.", ("policy", "action", "reason"), self.decisions)
        refused = {(cause,): count for cause, count in self.publish_refused.items()}
        yield _counter("publish_refused", "Publishes the broker did not take.", ("cause",), refused)
        connected = {(vhost,): value for vhost, value in self.broker_connected.items()}
        yield _gauge("broker_connected", "1 while a session is up.", ("vhost",), connected)
        waiting = {(rung,): count for rung, count in self.waiting().items()}
        yield _gauge("waiting", "Letters in a rung.", ("rung",), waiting)
        yield _gauge("policy_info", "The revision in force.", ("revision",), {(self.revision,): 1})
        yield _gauge("build_info", "The version.", ("version",), {(__version__,): 1})
        missing = {(): self.missing_headers}
        yield _counter("template_missing_headers", "Headers that a routing key asked for in vain.", (), missing)
        yield _counter("aliases_shadowed", "Producers' headers replaced by aliases.", (), {(): self.shadowed_headers})
        yield _histogram("route_seconds", "From delivery to ack.", self.route_seconds)
        yield _histogram("confirm_seconds", "From delivery to confirm.", self.confirm_seconds)
        yield _histogram("release_lateness_seconds", "How late a wait ended.", self.release_lateness)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in [*values.items()]:
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in [*values.items()]:
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(PREFIX + name, text)
    family.add_metric((), buckets=histogram.buckets(), sum_value=histogram.total)
    return family


def _capped(values: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    out: dict[tuple[str, str], int] = {}
    for (vhost, queue), count in [*values.items()]:
        key = (vhost, queue if len(out) < MAX_QUEUES else OTHER)
        out[key] = out.get(key, 0) + count
    return out
