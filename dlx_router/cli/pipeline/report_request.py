"""What `dlx-router pipeline report` was asked for, checked."""

from dataclasses import dataclass
from pathlib import Path

from dlx_router.spark.backtest.replay import Files
from dlx_router.spark.report.data import Objective


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """`since`, `until`: as they were written; `files`: policies, None for none; `master`, `remote`: a cluster."""

    archive: Path
    since: str | None
    until: str | None
    files: Files | None
    title: str
    objective: Objective
    master: str | None
    remote: str | None
