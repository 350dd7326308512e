"""docs/conformance.md: made from what runs saw, a column for each version; a run renews its own column only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.conformance.differences import ALLOWED, TOLERANCE_S
from tests.conformance.scenario import VERSIONS, Scenario
from tests.conformance.scenarios import SCENARIOS

PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"
WRITE: Final = os.environ.get("DLX_ROUTER_WRITE_DOCS") == "1"
EQUAL: Final = "equal"
UNSEEN: Final = "–"

Columns = Mapping[str, Mapping[str, str]]  # version → scenario's label → what was seen

_HEAD: Final = f"""\
# Conformance

Every scenario is played twice on a real broker: natively, with RabbitMQ's own dead-letter arguments, and through the
router, whose policy says the same. Then both ends are compared: which queues hold what, in which order, by which
exchange and routing key, every property, and every header with its AMQP type and the order of its fields.

*{EQUAL}*: no difference at all. Otherwise the cell names the difference. The list below is closed, and each difference
that is named was seen: one that no longer occurs turns its test red, as one that is not named does.

Not compared: our own headers (`dlx-router*`); times of deaths within {TOLERANCE_S} s; the flag `redelivered`, which
RabbitMQ 4 sets on the first delivery of a dead letter. All messages are persistent, as ours are at rest.

Numbers are those of a list of scenarios taken from RabbitMQ's own test suites; `own` are ours. This page is written by
`DLX_ROUTER_WRITE_DOCS=1 make test ALL=1 ARGS=tests/conformance`; without that, the tests compare it with what they see.

| scenario | what happens | {" | ".join(f"RabbitMQ {version}" for version in VERSIONS)} |
|---|---|{"---|" * len(VERSIONS)}
"""


def label(scenario: Scenario) -> str:
    """The first cell of a scenario's row; no two are alike."""
    return f"{scenario.number}, {scenario.kind}" if scenario.kind else scenario.number


def cell(scenario: Scenario, version: str) -> str:
    """What is written of a scenario that ended as it declares."""
    return "; ".join(scenario.differences(version)) or EQUAL


def render(columns: Columns) -> str:
    """The whole page."""
    rows = [
        f"| {label(row)} | {row.says} | {' | '.join(_cell(columns, version, row) for version in VERSIONS)} |"
        for row in SCENARIOS
    ]
    return _HEAD + "\n".join(rows) + "\n\n## Differences\n\n" + "\n".join(_differences(columns)) + "\n"


def _cell(columns: Columns, version: str, scenario: Scenario) -> str:
    return columns.get(version, {}).get(label(scenario), UNSEEN)


def _differences(columns: Columns) -> list[str]:
    named = {name for column in columns.values() for value in column.values() for name in value.split("; ")}
    seen = [f"* **{name}**: {why}." for name, (_, why) in ALLOWED.items() if name in named]
    unseen = [name for name in ALLOWED if name not in named]
    return [*seen, *([f"\nAllowed, and seen nowhere: {', '.join(unseen)}."] if unseen else [])]


def committed() -> dict[str, dict[str, str]]:
    """The columns of the page as it stands."""
    columns: dict[str, dict[str, str]] = {version: {} for version in VERSIONS}
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    for line in text.splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 2 + len(VERSIONS) and cells[0] != "scenario":
            for version, value in zip(VERSIONS, cells[2:], strict=True):
                columns[version][cells[0]] = value
    return columns


def renewed(version: str, seen: Mapping[str, str]) -> str:
    """The page with what a run on this version saw; what it did not play keeps what was said."""
    columns = committed()
    columns[version] = {**columns[version], **seen}
    return render(columns)
