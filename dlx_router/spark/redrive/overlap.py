"""Letters of a plan that another plan beside it sent already, and its archive did not know that: they would go twice.

An archive says nothing of a redrive before the next ingest, so whoever makes two plans in between chooses the same
letters. Plans that lie elsewhere are not known of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import dataset

from dlx_router.spark.publishing import IN_DOUBT
from dlx_router.spark.redrive.ledger import ledger_entry
from dlx_router.spark.redrive.plan import Plan, PlanError

_COPY = ("id", "failed_queue")  # in a move the vhost is another


@dataclass(frozen=True, slots=True)
class Overlap:
    """`letters` of a plan went by the plan in `folder` too, until `at_ms`."""

    folder: Path
    letters: int
    at_ms: int


def overlaps(folder: Path, plan: Plan) -> list[Overlap]:
    """By plans in folders beside this one. [] once this plan itself has begun: it then was decided."""
    if any((folder / "ledger").glob("*.begun")):
        return []
    beside = [other for other in sorted(folder.absolute().parent.iterdir()) if other != folder.absolute()]
    return [overlap for other in beside if (overlap := _overlap(folder, plan, other)) is not None]


def _overlap(folder: Path, plan: Plan, other: Path) -> Overlap | None:
    if not (other / "plan.json").is_file():
        return None
    try:
        sent = [*_sent_since(other, plan.as_of_ms)]
        if not sent:
            return None
        copies = pa.concat_arrays([_copies(other, number, failed) for number, failed, _ in sent])
        letters = sum(pc.sum(pc.is_in(_copies(folder, number), copies)).as_py() or 0 for number in range(plan.chunks))
    except (PlanError, OSError, pa.ArrowException):
        return None  # whatever it is, it says nothing of this plan
    return Overlap(other, letters, max(at_ms for _, _, at_ms in sent)) if letters else None


def _sent_since(folder: Path, since_ms: int) -> Iterator[tuple[int, list[dict[str, Any]], int]]:
    """Chunks that were sent behind that moment: number, letters that surely did not go, when."""
    for number in range(Plan.load(folder).chunks):
        begun, entry = folder / "ledger" / f"{number}.begun", ledger_entry(folder, number)
        if entry is not None and entry.get("at_ms", 0) > since_ms:
            failed = [letter for letter in entry["failed"] if not letter["result"].startswith(IN_DOUBT)]
            yield number, failed, entry["at_ms"]
        elif entry is None and begun.exists() and (at_ms := int(begun.stat().st_mtime * 1000)) > since_ms:
            yield number, [], at_ms


def _copies(folder: Path, number: int, without: list[dict[str, Any]] | None = None) -> pa.Array:
    """What tells copies of a chunk from others."""
    rows = dataset(str(folder / "chunks" / f"chunk={number}"), format="parquet").to_table([*_COPY]).combine_chunks()
    copies = pc.binary_join_element_wise(*(rows[name].cast(pa.string()) for name in _COPY), "\0")
    copies = copies.combine_chunks() if isinstance(copies, pa.ChunkedArray) else copies
    gone = pa.array(["\0".join(str(letter[name]) for name in _COPY) for letter in without or []], pa.string())
    return copies.filter(pc.invert(pc.is_in(copies, gone)))
