"""The ledger of a plan: what came of each chunk, and how often it was begun. People may read and mend its files."""

import json
from pathlib import Path
from typing import Any

from dlx_router.spark.redrive.plan import PlanError, replace_text


def ledger_entry(folder: Path, number: int) -> dict[str, Any] | None:
    """What came of a chunk, or None where it was not sent. PlanError: nobody knows any more."""
    file = folder / "ledger" / f"{number}.json"
    try:
        entry = json.loads(file.read_text(encoding="utf-8"))
        return {**entry, "confirmed": int(entry["confirmed"]), "failed": list(entry["failed"])}
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise PlanError(
            f"{file}: cannot be read ({error}), so nobody knows what came of this chunk; restore the file, or delete it"
            " to send the chunk whole: what was confirmed of it then comes twice, with one letter id"
        ) from None


def begun(folder: Path, number: int) -> int:
    """How often this chunk was begun before; that it is begun now is written down, should this run be killed."""
    file = folder / "ledger" / f"{number}.begun"
    try:
        before = int(file.read_text(encoding="utf-8")) if file.exists() else 0
    except ValueError as error:
        raise PlanError(
            f"{file}: no number of runs ({error}); write one into it that is surely not less than there were, because"
            " two runs with one number tell the journal one event"
        ) from None
    replace_text(file, str(before + 1))
    return before
