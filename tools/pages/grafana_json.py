"""Panels and boards as values, and the JSON that Grafana takes for them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

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


def as_json(board: Board) -> str:
    """What Grafana reads."""
    dashboard = {
        "uid": f"dlx-router-{board.name}",
        "title": board.title,
        "description": board.says,
        "tags": ["dlx-router", "rabbitmq"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(*variable) for variable in board.variables)]},
        "annotations": {"list": _annotations()},
        "links": [_link()],
        "panels": list(_placed(board.panels)),
    }
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


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
