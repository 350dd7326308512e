"""docs/pipeline-analyses.md says the columns that there are."""

import re
from pathlib import Path
from typing import Final

import pytest

from dlx_router.spark.analyses import efficacy, groups, letters, poison, recovery, trends
from dlx_router.spark.backtest import differences

pytestmark = pytest.mark.spark
PAGE: Final = Path(__file__).parents[3] / "docs" / "pipeline-analyses.md"
TABLES: Final = {
    "analyses.letters.letters": letters.LETTERS_SCHEMA,
    "analyses.letters.tries": letters.TRIES_SCHEMA,
    "analyses.groups.failure_groups": groups.GROUPS_SCHEMA,
    "analyses.trends.trends": trends.TRENDS_SCHEMA,
    "analyses.recovery.time_to_recovery": recovery.RECOVERY_SCHEMA,
    "analyses.recovery.slo_burn": recovery.SLO_SCHEMA,
    "analyses.efficacy.retry_efficacy": efficacy.EFFICACY_SCHEMA,
    "analyses.efficacy.episodes": efficacy.EPISODES_SCHEMA,
    "analyses.poison.poison_messages": poison.POISON_SCHEMA,
    "analyses.poison.redrive_success": poison.REDRIVES_SCHEMA,
    "backtest.differences.arrivals": differences.ARRIVALS_SCHEMA,
    "backtest.differences.summary": differences.SUMMARY_SCHEMA,
}


def test_the_page_has_every_table_as_it_is() -> None:
    rows = [f"| `{name}` | {', '.join(f'`{column}`' for column in ddl.split(', '))} |" for name, ddl in TABLES.items()]
    wanted = "\n".join(["| function of dlx_router.spark | columns |", "|---|---|", *rows])
    block = re.search(r"<!-- schemas -->\n(.*?)\n?<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    assert block[1] == wanted, wanted


def test_the_picture_is_there() -> None:
    assert (PAGE.parent / "img" / "pipeline-report.png").read_bytes().startswith(b"\x89PNG")
