"""How the metrics look to Prometheus: names, help texts, labels, and the caps that keep labels few."""

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from dlx_router import __version__
from dlx_router.core.breaker import Breaker
from dlx_router.core.words import APPLICATION
from dlx_router.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from dlx_router.telemetry.metrics import Metrics

PREFIX: Final = "dlx_router_"
OTHER: Final = "__other__"
MAX_QUEUES: Final = 200
Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Key = TypeVar("Key", bound=tuple[str, ...])
Values = Mapping[tuple[str, ...], float]


class Exposition(Collector):
    """Reads the counters at each scrape; every label value is text, whatever bytes a name is made of."""

    def __init__(self, metrics: "Metrics") -> None:
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
        told = "Messages in a queue of the router's own that wait to be delivered, looked at every 2 s."
        yield _gauge("messages_ready", told, ("vhost", "queue"), of.messages_ready)
        told = "Consumers that stood still and were begun anew; connection: it did not help, and all was."
        yield _counter("consumer_resubscriptions", told, ("vhost", "queue", "reason"), _by_reason(of.resubscriptions))
        yield _counter("decisions", "Decisions.", ("policy", "action", "reason"), _folded(of.decisions))
        told = "Letters with a record that is not obeyed: unsigned, or signed by others or for another vhost."
        yield _counter("foreign_records", told, ("vhost",), _single(of.foreign_records))
        told = "Letters whose x-death is not looked at: they came by no dead-letter exchange that is named."
        yield _counter("untrusted_deaths", told, ("vhost",), _single(of.untrusted_deaths))
        yield _gauge("waiting", "Letters in a rung, looked at every 10 s.", ("rung",), _single(of.waiting()))
        oldest = _oldest(of.oldest_letter_timestamp_seconds())
        told = "Timestamp of a queue's first letter, where the broker tells it."
        yield _gauge("oldest_letter_timestamp_seconds", told, ("queue",), oldest)
        yield _histogram("route_seconds", "From delivery to ack.", of.route_seconds)
        yield _histogram("release_lateness_seconds", "How late a wait ended.", of.release_lateness)

    def _publishing(self) -> Iterator[Metric]:
        of = self._metrics
        yield _counter("publish_refused", "Publishes that were not taken.", ("cause",), _single(of.publish_refused))
        yield _histogram("confirm_seconds", "From delivery to confirm.", of.confirm_seconds)
        yield _counter(
            "redrive_letters",
            "Letters that tasks sent, and their fates.",
            ("result",),
            _single(of.redrive_letters),
        )
        missing: Values = {(): of.missing_headers}
        yield _counter("template_missing_headers", "Headers that a routing key asked for in vain.", (), missing)
        gaps: Values = {(): of.journal_gaps}
        yield _counter("journal_gaps", "Events that the journal lost.", (), gaps)
        failed: Values = {(): of.condition_errors}
        yield _counter("condition_errors", "Conditions that failed, and so counted as false.", (), failed)
        cut: Values = {(): of.waits_cut}
        yield _counter("waits_cut", "Waits that a wall clock would have made longer than was decided.", (), cut)
        jumps: Values = {(): of.clock_jumps}
        yield _counter("clock_jumps", "Jumps of this host's wall clock by a second or more.", (), jumps)
        shadowed: Values = {(): of.shadowed_headers}
        yield _counter("aliases_shadowed", "Producers' headers replaced by aliases.", (), shadowed)

    def _surroundings(self) -> Iterator[Metric]:
        of = self._metrics
        told = "State of a queue's breaker: 0 closed, 1 half-open, 2 open."
        yield _gauge("breaker_state", told, ("queue",), _breakers(of.breakers()))
        told = "Thresholds that policies set for alerts: letters, seconds, letters a second."
        yield _gauge("policy_threshold", told, ("policy", "kind"), of.thresholds)
        told = "Letters in the queues where dead letters of a policy end that sets `alert`."
        yield _gauge("policy_letters", told, ("policy",), _of_policies(of.policy_letters, sum))
        told = "When the oldest of these letters came there, by the index; without it its timestamp property."
        oldest = _of_policies({**of.policy_oldest, **of.index_oldest}, min)
        yield _gauge("policy_oldest_letter_timestamp_seconds", told, ("policy",), oldest)
        yield _gauge("broker_connected", "1 while a session is up.", ("vhost",), _single(of.broker_connected))
        revision = {(of.revision,): 1} if of.revision else {}
        yield _gauge("policy_info", "The revision of the policies in force.", ("revision",), revision)
        told = "Steps that apply would take; absent where apply was never used."
        yield _gauge("policy_drift", told, ("vhost",), _single(dict(of.policy_drift)))
        yield _counter("reloads", "Policies read again.", ("result",), _single(of.reloads))
        told = "Spans for OpenTelemetry, by what became of them."
        yield _counter("spans", told, ("result",), _single(dict(of.spans)))
        told = "Events of the journal that the index has read, by whether a router signed them."
        yield _counter("index_events", told, ("vhost", "signature"), of.index_signatures())
        told = "Messages in the state queue that no router wrote, moved to quarantine."
        yield _counter("state_quarantined", told, ("vhost",), _single(dict(of.state_quarantined)))
        told = "Ends of tasks beside the letters by an error of their own; each was begun again."
        yield _counter("background_failures", told, ("task",), _single(dict(of.background_failures)))
        told = "Messages that no AMQP 0-9-1 client can be given, moved to quarantine by AMQP 1.0."
        yield _counter("unreadable", told, ("vhost",), _single(dict(of.unreadable)))
        tasks: Values = {(): of.asyncio_tasks()}
        yield _gauge("asyncio_tasks", "Tasks of the event loop; what grows here for hours is a leak.", (), tasks)
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
    found: dict[tuple[str, ...], list[float]] = {}
    for (_, policy), value in values.items():
        found.setdefault((policy,), []).append(value)
    return {policy: fold(several) for policy, several in found.items()}


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
