"""`make scale`: each row writes its own section of the page, and nothing else of it."""

from pathlib import Path

import pytest

from tools.bench.wire import BenchError
from tools.chaos.page_sections import with_section
from tools.scale.bench import Died, Row
from tools.scale.run import PAGE, ROWS, main, section


@pytest.mark.parametrize("name", ROWS)
def test_a_row_replaces_its_own_section_and_leaves_the_others(name: str) -> None:
    others = [other for other in ROWS if other != name]
    page = "# Capacity\n\nWords.\n"
    for other in (*others, name):
        page = with_section(page, f"scale {other}", section(other, [Row(other, "1")], 5, version="4.3", took_s=60))
    again = section(name, [Row("anew", "2"), Row("too much", "3", ok=False)], 7, version="4.3", took_s=90)
    written = with_section(page, f"scale {name}", again)
    assert "| anew | 2 |" in written
    assert "| too much | 3 **(not within its limit)** |" in written
    assert f"| {name} | 1 |" not in written
    assert all(f"| {other} | 1 |" in written for other in others)
    assert written.startswith("# Capacity\n\nWords.\n")


def test_the_page_names_the_command_of_each_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in ROWS if f"make scale ROW={name}" not in page] == []


@pytest.mark.slow
def test_a_smaller_run_writes_to_the_page_that_is_named_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The index needs no broker."""
    before, page = PAGE.read_text(encoding="utf-8"), tmp_path / "section"
    assert main(["index", "--size", "60000000", "--page", str(page)]) in {0, 1}
    assert "events written at the bound" in page.read_text(encoding="utf-8")
    assert "letters in it" in capsys.readouterr().out
    assert PAGE.read_text(encoding="utf-8") == before


def test_letters_die_at_the_queues_that_are_named() -> None:
    letters = Died("wq0001", "wq0002")
    assert b"wq0001" in letters(0)[0]
    assert b"wq0002" in letters(1)[0]
    with pytest.raises(BenchError, match="must have 6 characters"):
        Died("longer-name")(0)
