"""What Prometheus sees: every frozen name, few labels, and a law that holds at every scrape."""

from prometheus_client.parser import text_string_to_metric_families

from dlx_router.telemetry.metrics import MAX_QUEUES, OTHER, Histogram, Metrics

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(metrics: Metrics) -> dict[Sample, float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"dlx_router_{name}", frozenset(labels.items())]


def test_label_sets_that_are_known_start_at_zero() -> None:
    metrics = Metrics()
    metrics.serve("/", ["dlx-router.inbox"])
    assert value(metrics, "deliveries_total", vhost="/", source="dlx-router.inbox") == 0
    for action in ("retry", "dead_letter", "park", "quarantine", "forward", "discard", "hold"):
        assert value(metrics, "settled_total", vhost="/", action=action) == 0
    for cause in ("returned", "nacked", "timeout", "closed"):
        assert value(metrics, "publish_refused_total", cause=cause) == 0
    assert value(metrics, "reloads_total", result="failure") == 0
    assert value(metrics, "broker_connected", vhost="/") == 0


def test_serving_a_vhost_again_resets_nothing() -> None:
    metrics = Metrics()
    metrics.serve("/", ["a"])
    metrics.deliveries["/", "a"] += 1
    metrics.broker_connected["/"] = 1
    metrics.serve("/", ["a", "b"])
    assert value(metrics, "deliveries_total", vhost="/", source="a") == 1
    assert value(metrics, "broker_connected", vhost="/") == 1


def test_queues_beyond_the_cap_are_one_and_no_counter_ever_falls() -> None:
    metrics = Metrics()
    for number in range(MAX_QUEUES + 50):
        metrics.deliveries["/", f"q{number}"] += 1
    before = samples(metrics)
    metrics.deliveries["/", "q0"] += 1
    metrics.deliveries["/", "one more"] += 1
    after = samples(metrics)
    deliveries = [key for key in after if key[0] == "dlx_router_deliveries_total"]
    assert len(deliveries) == MAX_QUEUES + 1
    assert after["dlx_router_deliveries_total", frozenset({("vhost", "/"), ("source", OTHER)})] == 51
    assert all(after[key] >= before[key] for key in deliveries)
    assert sum(after[key] for key in deliveries) == sum(metrics.deliveries.values())


def test_the_oldest_letters_are_named_where_there_are_too_many_queues() -> None:
    metrics = Metrics()
    metrics.oldest_letter_timestamp_seconds = lambda: {f"q{n}": 1000.0 - n for n in range(MAX_QUEUES + 2)}
    assert value(metrics, "oldest_letter_timestamp_seconds", queue=f"q{MAX_QUEUES + 1}") == 1000.0 - MAX_QUEUES - 1
    assert value(metrics, "oldest_letter_timestamp_seconds", queue=OTHER) == 999.0


def test_reasons_that_applications_invent_are_one_label() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.decisions["p", "park", f"application:{number}"] += 1
    assert value(metrics, "decisions_total", policy="p", action="park", reason="application") == 1000


def test_a_name_that_is_no_text_does_not_cost_the_metrics() -> None:
    metrics = Metrics()
    metrics.deliveries['v"\n', "a\udcffb\\"] += 1
    assert value(metrics, "deliveries_total", vhost='v"\n', source="a\\udcffb\\") == 1


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    histogram = Histogram()
    histogram.observe(0.001)
    histogram.observe(0.0011, n=3)
    histogram.observe(99)
    buckets = dict(histogram.buckets())
    assert (buckets["0.001"], buckets["0.0025"], buckets["30.0"], buckets["+Inf"]) == (1, 4, 4, 5)
    assert (histogram.count, round(histogram.total, 4)) == (5, 99.0043)


def test_the_counts_of_sources_that_came_and_went_are_bounded_and_none_falls() -> None:
    metrics = Metrics()
    metrics.deliveries["/", "first"] += 3
    for n in range(5000):
        metrics.deliveries["/", f"gone-{n}"] += 1
    metrics.deliveries["/", "gone-4999"] += 1
    assert len(metrics.deliveries) < 500
    assert sum(metrics.deliveries.values()) == 5004
    text = metrics.text().decode()
    assert 'deliveries_total{source="first",vhost="/"} 3.0' in text
    assert 'deliveries_total{source="__other__",vhost="/"} 4802.0' in text


def test_resubscriptions_of_queues_that_came_and_went_are_bounded_and_none_falls() -> None:
    metrics = Metrics()
    counts = metrics.resubscriptions["not_delivered"]
    for number in range(10 * MAX_QUEUES):
        counts["/", f"q{number}"] += 1
        assert len(counts) <= 2 * MAX_QUEUES + 1
    labels = {"vhost": "/", "queue": "q0", "reason": "not_delivered"}
    assert value(metrics, "consumer_resubscriptions_total", **labels) == 1
    assert value(metrics, "consumer_resubscriptions_total", **labels | {"queue": OTHER}) == 9 * MAX_QUEUES
