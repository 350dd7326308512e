"""docs/performance.md says what build/bench.json says, and promises nothing besides."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tools.bench.contestants import PAIR, RELAY, ROUTER, SHOVEL, SILENT
from tools.bench.page import main, page
from tools.bench.report import cells, summary

RATES = {ROUTER: 12_000.0, SHOVEL: 9_000.0, RELAY: 2_000.0, SILENT: 15_000.0, PAIR: 13_200.0}


def result(rate: float, **more: Any) -> dict[str, Any]:
    own = {"messages": 1000, "messages_per_s": rate, "mb_per_s": rate / 1000, "seconds": 1.0, "seconds_all": 1.2}
    return {**own, "broker_cpu_us_per_message": 80.0, "cpu_us_per_message": 31.0, "rss_mb": 71.0, **more}


def bench_file(messages: int = 100_000, rounds: int = 8, load: float = 0.1, **more: Any) -> dict[str, Any]:
    """A file of `make bench`, as its own functions put it together."""
    results = {name: result(rate) for name, rate in RATES.items()}
    results[PAIR]["smaller_share"] = 0.43
    every = [
        {"version": "4.3", "type": kind, "bytes": size, "round": 0, "dropped": False, "results": results}
        for kind in ("classic", "quorum")
        for size in (1024, 65536)
    ]
    table = cells(every)
    return {
        "summary": summary(table),
        "cells": table,
        "rounds": every,
        "shapes": [],
        "machine": {
            "cpu": "x",
            "cores": 2,
            "memory": "1 kB",
            "system": "Linux",
            "python": "3.11",
            "packages": {"a": None, "b": "1"},
            "load_before": load,
        },
        "brokers": {"4.3": "4.3.6"},
        "failed_runs": 0,
        "seed": 1,
        "seconds": 60,
        "date": "2026-01-02",
        "options": {"messages": messages, "rounds": rounds, "aio_messages": 10, "shovel": "network"},
    } | more


def test_goals_are_said_to_be_reached_only_where_they_are() -> None:
    lines = page(bench_file()).splitlines()
    (shovel,) = [line for line in lines if "AMQP shovel, 1 KiB" in line]
    (cpu,) = [line for line in lines if "CPU of the router for a letter" in line]
    assert (shovel.split("|")[2:5], cpu.split("|")[2:5]) == (
        [" 1.333 ", " ≥ 1.2 ", " reached "],
        [" 31 ", " ≤ 20 ", " **not reached** "],
    )


def test_every_contestant_has_its_numbers() -> None:
    text = page(bench_file())
    for expected in ("12,000", "9,000", "1.33 × (1.33 … 1.33)", "6.00 ×", "0.80 ×", "13,200", "1.10 ×", "43%"):
        assert expected in text, expected


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ({"messages": 500}, "**A short run**"),
        ({"rounds": 2}, "**A short run**"),
        ({"load": 3.0}, "not at rest"),
        ({"failed_runs": 2}, "**2 runs failed**"),
    ],
)
def test_a_run_that_is_no_measurement_says_so(given: dict[str, Any], warning: str) -> None:
    assert warning in page(bench_file(**given))
    assert warning not in page(bench_file())


def test_what_was_not_measured_has_no_section() -> None:
    whole = bench_file()
    for cell in whole["cells"]:
        del cell[PAIR]
    assert "Two processes" in page(bench_file())
    assert "Two processes" not in page(whole)
    assert "Backlogs" not in page(whole)


def test_shapes_have_their_rows_and_a_failed_one_says_so() -> None:
    shapes = [
        {"version": "4.3", "type": "quorum", "bytes": size, "messages": count, "results": results}
        for size, count, results in (
            (0, 100, {ROUTER: result(5000.0), SHOVEL: {"error": "stood still"}}),
            (16 << 20, 24, {ROUTER: result(20.0)}),
        )
    ]
    rows = [line for line in page(bench_file(shapes=shapes)).splitlines() if line.startswith(("| 100 |", "| 24 |"))]
    assert rows == [
        "| 100 | 0 B | 5,000 | 5 | 71 | **failed** |",
        "| 24 | 16 MiB | 20 | 0 | 71 | – |",
    ]


def test_the_page_is_written_and_a_file_of_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "bench.json", tmp_path / "page.md"
    source.write_text(json.dumps(bench_file()), encoding="utf-8")
    assert main([str(source), str(target)]) == 0
    assert target.read_text(encoding="utf-8") == page(bench_file())
    source.write_text('{"cells": 1}', encoding="utf-8")
    assert main([str(source), str(target)]) == 2
    assert "run `make bench` first" in capsys.readouterr().err


def test_the_page_of_this_tree_is_of_this_generator() -> None:
    ours = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert ours.startswith(page(bench_file()).split("\n## ")[0].split("\n\n**")[0])


def test_latency_is_told_beside_native_and_shovel() -> None:
    ways = {"native": [5.0, 15.0], "shovel": [12.5, 35.0], "routed": [10.8, 24.9]}
    late = {"native": [5.0, 15.0], "shovel": [4.5, 14.0], "routed": [11.5, 24.0]}
    measured = {
        "4.3": {"rate": 1000, "seconds": 60, "p50_p99_ms": ways},
        "3.10": {"rate": 1000, "seconds": 60, "p50_p99_ms": late},
    }
    lines = page(bench_file() | {"latency": measured}).splitlines()
    rows = [line for line in lines if line.startswith(("| 3.10 | 1,000", "| 4.3 | 1,000"))]
    assert rows == [
        "| 3.10 | 1,000 | 5.0, 15.0 | − 0.5, − 1.0 | + 6.5, + 9.0 | ≤ 6, ≤ 15 | **not reached** |",
        "| 4.3 | 1,000 | 5.0, 15.0 | + 7.5, + 20.0 | + 5.8, + 9.9 | ≤ 6, ≤ 15 | reached |",
    ]
