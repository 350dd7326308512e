"""The ledger of a bulk redrive: what it cannot say is said to be unknown, with what to do."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from dlx_router.spark.redrive.ledger import begun, ledger_entry
from dlx_router.spark.redrive.plan import Plan, PlanError, replace_text
from dlx_router.spark.redrive.run import progress

pytestmark = pytest.mark.spark
ENTRY = {"confirmed": 3, "failed": [], "at_ms": 7}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of two chunks; nothing of it is sent."""
    folder = tmp_path / "plan"
    (folder / "ledger").mkdir(parents=True)
    made = Plan("r-1", {}, letters=6, chunks=2, unusable=0, queues={"orders": 6}, as_of_ms=1)
    replace_text(folder / "plan.json", json.dumps(asdict(made)))
    return folder


def test_an_entry_is_written_whole_and_nothing_is_left_beside_it(plan: Path) -> None:
    replace_text(plan / "ledger/0.json", json.dumps(ENTRY))
    assert (ledger_entry(plan, 0), ledger_entry(plan, 1)) == (ENTRY, None)
    assert (progress(plan).chunks_done, progress(plan).confirmed) == (1, 3)
    assert [path.name for path in (plan / "ledger").iterdir()] == ["0.json"]
    assert [begun(plan, 0), begun(plan, 0), begun(plan, 1)] == [0, 1, 0]


@pytest.mark.parametrize("text", ["", '{"confirmed": 3, "fai', "\0" * 40, "[]", "7", '{"confirmed": 3}', "\ud800"])
def test_an_entry_that_a_power_cut_took_is_not_known(plan: Path, text: str) -> None:
    """It was "a fault of dlx-router", in each further run."""
    (plan / "ledger/1.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(PlanError, match=r"1\.json: cannot be read .*; restore the file, or delete it to send"):
        progress(plan)


@pytest.mark.parametrize("text", ["", "two", "\0\0"])
def test_how_often_a_chunk_was_begun_is_no_guess(plan: Path, text: str) -> None:
    (plan / "ledger/1.begun").write_text(text)
    with pytest.raises(PlanError, match=r"1\.begun: no number of runs"):
        begun(plan, 1)
