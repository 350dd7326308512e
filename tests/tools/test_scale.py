"""`make scale`: each row writes its own section of the page, and nothing else of it."""

from pathlib import Path

import pytest

from tools import brokers
from tools.bench.wire import BenchError
from tools.chaos.page_sections import with_section
from tools.scale import soak_pieces
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


def test_the_page_names_the_command_of_each_row_and_how_long_it_takes() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = {name: [line for line in lines if line.startswith(f"| `make scale ROW={name}`")] for name in ROWS}
    ends = {
        name: [line.removesuffix(" each |").removesuffix(" |").rpartition(" ")[2] for line in shown[name]]
        for name in ROWS
    }
    assert ends == {name: [str(row.minutes)] for name, row in ROWS.items()}


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


@pytest.mark.slow
def test_the_row_of_a_redrive_finds_all_that_it_made(broker: brokers.Broker, tmp_path: Path) -> None:
    """Its failed queue has to stand: letters of one that does not lie in the common dead-letter queue."""
    version = ".".join(broker.version.split(".")[:2])
    if not isinstance(broker, brokers.Node) or version not in brokers.RELEASES:
        pytest.skip("it starts a node of its own")
    page = tmp_path / "section"
    assert main(["redrive", "--size", "320", "--version", version, "--page", str(page)]) == 0
    assert "| letters sent, of those that the filter means | 40 of 40 |" in page.read_text(encoding="utf-8")


def test_letters_die_at_the_queues_that_are_named() -> None:
    letters = Died("wq0001", "wq0002")
    assert b"wq0001" in letters(0)[0]
    assert b"wq0002" in letters(1)[0]
    with pytest.raises(BenchError, match="must have 6 characters"):
        Died("longer-name")(0)


def test_pieces_of_a_soak_tell_their_versions_and_rates_and_one_that_grew_is_not_within_its_limit() -> None:
    flat = {
        "date": "2026-11-26", "version": "4.3.6", "minutes": 120.0, "rate": 150.0, "letters": 1_000_000, "lost": 0,
        "reconnects": 300, "reloads": 119, "rss_mb": [90.0, 101.25, 101.0], "broken": [],
    }  # fmt: skip
    grew = flat | {"version": "3.10.8", "lost": 1, "broken": ["rss_mb grew: 101 → 140"]}
    rows = {row.what: row for row in soak_pieces.rows([flat, grew])}
    assert rows["pieces, minutes together"].found == "2, 240"
    assert rows["letters published"].found == "2,000,000"
    assert (rows["letters lost"].found, rows["letters lost"].ok) == ("1", False)
    first = rows["piece 1, 2026-11-26, RabbitMQ 4.3.6, 120 minutes at 150/s: memory by thirds"]
    assert first == (first.what, "90.0 → 101.2 → 101.0 MB, flat", True)
    second = rows["piece 2, 2026-11-26, RabbitMQ 3.10.8, 120 minutes at 150/s: memory by thirds"]
    assert (second.found.endswith("rss_mb grew: 101 → 140"), second.ok) == (True, False)
