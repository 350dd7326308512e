"""Alerts of one release of the chart beside another in the same Prometheus: each fires for its own series alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import of_kind, rendered
from tests.deploy.test_files import run, tool

MINIMAL: Final[Mapping[str, Any]] = {"amqp": {"existingSecret": "rabbit"}}
WATCHED: Final = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
OWN: Final = 'namespace="messaging",job="prod-dlx-router"'
NEIGHBOUR: Final = 'namespace="messaging",job="watch-dlx-router"'
SERIES: Final = re.compile(r"dlx_router[_:][a-z0-9_:]+")
# The alerts that read what was recorded, and series by which they fire.
RECORDED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "DeadLetterRateHigh": (
        ('dlx_router_decisions_total{policy="orders",action="dead_letter",SERIES}', "0+6x120 720+60x40"),
    ),
    "DeadLetterRateAbovePolicy": (
        ('dlx_router_decisions_total{policy="orders",action="dead_letter",SERIES}', "0+60x160"),
        ('dlx_router_policy_threshold{policy="orders",kind="rate",SERIES}', "0.1x160"),
    ),
    "ReleaseLate": (
        ('dlx_router_release_lateness_seconds_bucket{le="1",SERIES}', "0x160"),
        ('dlx_router_release_lateness_seconds_bucket{le="10",SERIES}', "0+60x160"),
        ('dlx_router_release_lateness_seconds_bucket{le="+Inf",SERIES}', "0+60x160"),
    ),
}


def _rules(release: str, series: str = "") -> list[dict[str, Any]]:
    monitoring = {**WATCHED, "prometheusRule": {"enabled": True, "series": series}}
    (made,) = of_kind(rendered({**MINIMAL, "monitoring": monitoring}, release), "PrometheusRule")
    return [rule for group in made["spec"]["groups"] for rule in group["rules"]]


def test_every_series_of_ours_in_a_rule_is_of_this_release() -> None:
    """`prod` was woken for `watch`: what rules record was left out, in the chart and in this test."""
    for rule in _rules("prod"):
        ours = SERIES.findall(rule["expr"])
        assert rule["expr"].count(OWN) == len(ours)
        assert ours or rule["alert"] == "DeadLettersDropped", "that is about the broker's own series"
    (down,) = [rule for rule in _rules("prod") if rule.get("alert") == "RouterDown"]
    assert down["expr"] == f"absent(dlx_router_build_info{{{OWN}}})"


@pytest.mark.parametrize(
    ("series", "ours", "theirs"),
    [("", OWN, NEIGHBOUR), ('app="a"', 'app="a",job="x"', 'app="b",job="x"')],
    ids=["ServiceMonitor", "labels of yours"],
)
def test_a_release_is_woken_by_its_own_letters_and_by_no_neighbours(
    series: str, ours: str, theirs: str, tmp_path: Path
) -> None:
    program = tool("promtool")
    recorded = [rule for rule in _rules("watch", 'app="b"' if series else "") if "record" in rule]
    for name, rules in {"prod": _rules("prod", series), "watch": recorded}.items():
        document = {"groups": [{"name": name, "rules": rules}]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        run(program, "check", "rules", str(tmp_path / f"{name}.yaml"))
    fired = [_suite(alert, ours, fires=True) for alert in RECORDED]
    silent = [_suite(alert, theirs, fires=False) for alert in RECORDED]
    suites = {"rule_files": ["prod.yaml", "watch.yaml"], "tests": [*fired, *silent]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(suites), encoding="utf-8")
    run(program, "test", "rules", str(tmp_path / "test.yaml"))


def _suite(alert: str, labels: str, *, fires: bool) -> dict[str, Any]:
    """Whether it fires after 140 minutes, by a series of its own that is there only while it does."""
    fed = [{"series": name.replace("SERIES", labels), "values": values} for name, values in RECORDED[alert]]
    asked = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    expected = [{"labels": "{}", "value": 1}] if fires else []
    return {
        "interval": "1m",
        "input_series": fed,
        "promql_expr_test": [{"expr": asked, "eval_time": "140m", "exp_samples": expected}],
    }
