"""Write Grafana's dashboards (charts/dlx-router/files/dashboards/*.json) from the short descriptions below.

    python -m tools.pages.dashboards            # writes them; a test fails where they are stale

Each panel asks for metrics of the router; tests/deploy asks a real Prometheus every question of every panel.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.pages.grafana_json import Board, Panel, as_json

__all__ = ["BOARDS", "FOLDER", "Board", "Panel", "as_json", "asks"]

FOLDER: Final = Path(__file__).parents[2] / "charts" / "dlx-router" / "files" / "dashboards"


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
        Panel(
            "In flight, and ready in own queues",
            "short",
            (
                ("{{vhost}} {{instance}}", "dlx_router_in_flight"),
                ("ready in {{queue}} ({{vhost}})", "max by (vhost, queue) (dlx_router_messages_ready)"),
            ),
            width=8,
        ),
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


def main() -> int:
    """0: written."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(as_json(board), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
