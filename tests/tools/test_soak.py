"""A soak in short: it disturbs, it looks, it accounts for every letter. How flat is flat is a table."""

from pathlib import Path

import pytest

from tests.support.router import Router
from tools import brokers
from tools.chaos.soak.page import markdown
from tools.chaos.soak.process_usage import Sample, Trend, Watch
from tools.chaos.soak.run import Soak, run


@pytest.mark.parametrize(
    ("measure", "middle", "last", "flat"),
    [
        ("rss_mb", 100.0, 105.0, True),
        ("rss_mb", 100.0, 105.1, False),
        ("rss_mb", 100.0, 60.0, True),
        ("rss_mb", 20.0, 23.0, False),
        ("tasks", 20.0, 23.0, True),
        ("tasks", 20.0, 24.0, False),
        ("descriptors", 200.0, 210.0, True),
        ("descriptors", 200.0, 211.0, False),
    ],
)
def test_flat_is_five_percent_or_for_the_few_three(measure: str, middle: float, last: float, flat: bool) -> None:  # noqa: FBT001 - a column of the table
    assert Trend(measure, (1.0, middle, last), last).flat is flat


def test_thirds_are_medians_so_that_one_look_says_nothing(tmp_path: Path) -> None:
    watch = Watch(Router(amqp_url="", policies=tmp_path, log=tmp_path / "log"))
    watch.samples = [
        Sample(at, rss, 10, 20) for at, rss in enumerate([50, 60, 70, 80, 999, 80, 80, 81, 82, 81], start=1)
    ]
    memory = watch.trends()[0]
    assert (memory.thirds, memory.peak, memory.flat) == ((60, 80, 81), 999, True)


@pytest.mark.long
def test_a_short_soak_loses_nothing_and_says_what_it_saw(broker: brokers.Broker, tmp_path: Path) -> None:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a soak has a broker of its own")
    version = ".".join(broker.version.split(".")[:2])
    soak = run(Soak(version, minutes=0.2, rate=50, disturbed_every_s=4), tmp_path)
    assert soak.report is not None
    assert [violation for violation in soak.broken if " grew: " not in violation] == []  # seconds are no trend
    assert (soak.report.verdict.lost, soak.report.verdict.letters > 100) == (0, True)
    assert min(soak.reloads, soak.reconnects, soak.looks, soak.parked) > 0
    text = markdown(soak)
    for expected in ("resident memory, MB", "| **lost** | **0** |", f"{soak.parked:,} that belong into parking"):
        assert expected in text, expected
