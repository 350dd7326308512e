"""Write Grafana's dashboards (charts/dlx-router/files/dashboards/*.json) from the short descriptions below.

    python tools/dashboards.py            # writes them; a test fails where they are stale

Each panel asks for metrics of INTERFACES; tests/deploy asks a real Prometheus every question of every panel.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "charts" / "dlx-router" / "files" / "dashboards"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS: Final = 24
HEIGHT: Final = 8
SMALL: Final = 4


@dataclass(frozen=True)
class Panel:
    """One picture: `asks` are (legend, PromQL); `kind` is timeseries, stat, bargauge or table."""

    title: str
    unit: str
    asks: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 12
    says: str = ""
    stacked: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard; `variables` are (name, metric, label)."""

    name: str
    title: str
    says: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str, str], ...] = ()


def _stat(title: str, unit: str, ask: str, says: str = "") -> Panel:
    return Panel(title, unit, (("", ask),), "stat", 6, says)


OVERVIEW: Final = Board(
    "overview",
    "dlx-router / Overview",
    "What dies, and what becomes of it.",
    (
        _stat(
            "Dead letters, last hour", "short", 'sum(increase(dlx_router_decisions_total{action="dead_letter"}[1h]))'
        ),
        _stat("Retries, last hour", "short", 'sum(increase(dlx_router_decisions_total{action="retry"}[1h]))'),
        _stat("Waiting now", "short", "sum(max by (rung) (dlx_router_waiting))", "Letters whose wait has not ended."),
        _stat("Routers", "short", "count(dlx_router_build_info)"),
        Panel(
            "Decisions by action",
            "ops",
            (("{{action}}", "sum by (action) (rate(dlx_router_decisions_total[$__rate_interval]))"),),
            stacked=True,
        ),
        Panel(
            "Deaths by reason",
            "ops",
            (("{{reason}}", "sum by (reason) (rate(dlx_router_decisions_total[$__rate_interval]))"),),
            stacked=True,
        ),
        Panel(
            "Dead letters by policy",
            "ops",
            (("{{policy}}", "topk(10, dlx_router:dead_letters:rate5m)"),),
            says="The ten policies whose letters die most.",
        ),
        Panel(
            "What arrives and what is settled",
            "ops",
            (
                ("arrives {{vhost}}", "sum by (vhost) (rate(dlx_router_deliveries_total[$__rate_interval]))"),
                ("settled {{vhost}}", "sum by (vhost) (rate(dlx_router_settled_total[$__rate_interval]))"),
            ),
        ),
    ),
)
AGEING: Final = Board(
    "ageing",
    "dlx-router / Ageing",
    "How long letters wait, and which queues nobody looks after.",
    (
        Panel(
            "Oldest letter",
            "s",
            (("{{queue}}", "time() - max by (queue) (dlx_router_oldest_letter_timestamp_seconds)"),),
            "bargauge",
            24,
            "Only where the broker tells it: classic queues, by the producer's timestamp.",
        ),
        Panel("Waiting by rung", "short", (("{{rung}} ms", "max by (rung) (dlx_router_waiting)"),), stacked=True),
        Panel(
            "How late waits end",
            "s",
            (
                ("p50", "histogram_quantile(0.5, sum by (le) (rate(dlx_router_release_lateness_seconds_bucket[5m])))"),
                ("p99", "dlx_router:release_lateness_seconds:p99_5m"),
            ),
        ),
    ),
)
SURVIVE: Final = (
    '1 - sum(rate(dlx_router_decisions_total{policy=~"$policy",action="dead_letter"}[30m])) '
    '/ sum(rate(dlx_router_decisions_total{policy=~"$policy",action=~"retry|dead_letter"}[30m]))'
)
POLICY: Final = Board(
    "policy",
    "dlx-router / Policy",
    "One policy: what it decides, and how near its letters are to its alert.",
    (
        Panel(
            "Decisions",
            "ops",
            (
                (
                    "{{action}} {{reason}}",
                    'sum by (action, reason) (rate(dlx_router_decisions_total{policy=~"$policy"}[$__rate_interval]))',
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Survive their retries",
            "percentunit",
            (
                (
                    "not dead",
                    SURVIVE,
                ),
            ),
            says="Share of decisions that are tries. What dies at once counts as dead.",
        ),
        Panel(
            "Dead letters against the policy's alert",
            "ops",
            (
                ("{{policy}}", 'dlx_router:dead_letters:rate5m{policy=~"$policy"}'),
                ("alert of {{policy}}", 'max by (policy) (dlx_router_policy_threshold{policy=~"$policy",kind="rate"})'),
            ),
        ),
        Panel(
            "Revision in force", "short", (("{{revision}}", "count by (revision) (dlx_router_policy_info)"),), "table"
        ),
    ),
    (("policy", "dlx_router_decisions_total", "policy"),),
)
REDRIVE: Final = Board(
    "redrive",
    "dlx-router / Redrive",
    "Letters that were sent back, and those that came back dead.",
    (
        Panel(
            "Redriven letters",
            "ops",
            (("{{result}}", "sum by (result) (rate(dlx_router_redrive_letters_total[$__rate_interval]))"),),
            stacked=True,
        ),
        Panel(
            "Since the beginning",
            "short",
            (("{{result}}", "sum by (result) (dlx_router_redrive_letters_total)"),),
            "bargauge",
        ),
    ),
)
INTERNALS: Final = Board(
    "internals",
    "dlx-router / Internals",
    "The routers themselves.",
    (
        Panel("Connected", "short", (("{{vhost}} {{instance}}", "dlx_router_broker_connected"),), "stat", 8),
        Panel("In flight", "short", (("{{vhost}} {{instance}}", "dlx_router_in_flight"),), width=8),
        Panel("Breakers", "short", (("{{queue}}", "max by (queue) (dlx_router_breaker_state)"),), "bargauge", 8),
        Panel(
            "From delivery to ack",
            "s",
            (
                ("p50", "histogram_quantile(0.5, sum by (le) (rate(dlx_router_route_seconds_bucket[5m])))"),
                ("p99", "dlx_router:route_seconds:p99_5m"),
                ("p99 confirm", "dlx_router:confirm_seconds:p99_5m"),
            ),
        ),
        Panel(
            "Refused publishes",
            "ops",
            (("{{cause}}", "sum by (cause) (rate(dlx_router_publish_refused_total[$__rate_interval]))"),),
        ),
        Panel(
            "Given back and journal gaps",
            "ops",
            (
                ("given back: {{cause}}", "sum by (cause) (rate(dlx_router_given_back_total[$__rate_interval]))"),
                ("journal gaps", "sum(rate(dlx_router_journal_gaps_total[$__rate_interval]))"),
            ),
        ),
        Panel(
            "CPU",
            "percentunit",
            (("{{instance}}", 'rate(process_cpu_seconds_total{job=~".*dlx-router.*"}[$__rate_interval])'),),
            width=8,
        ),
        Panel("Memory", "bytes", (("{{instance}}", 'process_resident_memory_bytes{job=~".*dlx-router.*"}'),), width=8),
        Panel(
            "Policies read again",
            "short",
            (("{{result}}", "sum by (result) (increase(dlx_router_reloads_total[1h]))"),),
            width=8,
        ),
    ),
)
BOARDS: Final = (OVERVIEW, AGEING, POLICY, REDRIVE, INTERNALS)


def asks() -> Iterator[tuple[str, str]]:
    """Every question of every panel: (where, PromQL)."""
    for board in BOARDS:
        for panel in board.panels:
            for _, ask in panel.asks:
                yield f"{board.name}: {panel.title}", ask


def as_json(board: Board) -> str:
    """What Grafana reads."""
    told = {
        "uid": f"dlx-router-{board.name}",
        "title": board.title,
        "description": board.says,
        "tags": ["dlx-router", "rabbitmq"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(*one) for one in board.variables)]},
        "annotations": {"list": _annotations()},
        "links": [_link()],
        "panels": list(_placed(board.panels)),
    }
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _placed(panels: tuple[Panel, ...]) -> Iterator[dict[str, Any]]:
    x = y = tallest = 0
    for number, panel in enumerate(panels, 1):
        height = SMALL if panel.kind == "stat" and panel.width < COLUMNS // 3 else HEIGHT
        if x + panel.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height})
        x, tallest = x + panel.width, max(tallest, height)


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 25 if panel.stacked else 8, "lineWidth": 2, "showPoints": "never"}
    custom |= {"stacking": {"mode": "normal"}} if panel.stacked else {}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": defaults | ({"custom": custom} if panel.kind == "timeseries" else {}),
            "overrides": [],
        },
        "options": _options(panel.kind),
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": ask, "legendFormat": legend or "__auto"}
            | ({"instant": True, "format": "table"} if panel.kind == "table" else {})
            for at, (legend, ask) in enumerate(panel.asks)
        ],
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "bargauge":
        return {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {}


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": "A"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _annotations() -> list[dict[str, Any]]:
    return [
        {
            "name": "New policies",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": "blue",
            "expr": "sum by (result) (changes(dlx_router_reloads_total[1m])) > 0",
            "titleFormat": "policies read again: {{result}}",
        }
    ]


def _link() -> dict[str, Any]:
    return {"type": "dashboards", "title": "dlx-router", "tags": ["dlx-router"], "asDropdown": True, "keepTime": True}


def main() -> int:
    """0: written."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(as_json(board), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
