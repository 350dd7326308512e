"""`pipeline sql`: what it answers, what it refuses, and that it neither writes nor reads anything else."""

import csv
import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dlx_router.cli.main import main
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.tables.database import opened
from dlx_router.spark.tables.dictionary import TABLES, duckdb_type, quoted
from dlx_router.spark.tables.query import TABLE_ROWS, run
from tests.cli.recorded import Terminal
from tests.core.core_samples import letter
from tests.journal.journal_samples import line
from tests.journal.rows_of import rows_of
from tests.spark.rows import messages, rows
from tests.spark.tables.scene import MONDAY_MS, STORED, Written, event

ROOT = Path(__file__).parents[3]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Two events of Monday that are compacted, three of Tuesday that are not, of which one stands twice."""
    made = Written(tmp_path / "an archive's")
    monday = [event("a", 1), event("b", 2, failed_queue="mail")]
    seg = made.put(*monday)
    made.compact("2026-03-09", monday, seg)
    made.put(event("c", 25), event("d", 26, kind="retried", due_ms=0, reason=None))
    made.put(event("c", 25, signature="none"), event("a", 1), bad=[b'{"v":1'])
    return made


def ask(made: Written, text: str, form: str = "json") -> Any:
    out = io.StringIO()
    run(made.archive.root, text, form, out, lambda *_: None)
    return json.loads(out.getvalue()) if form == "json" else out.getvalue()


def refused(made: Written, text: str, form: str = "json") -> str:
    with pytest.raises(ArchiveError) as error:
        ask(made, text, form)
    return str(error.value)


def test_the_views_have_the_columns_of_the_dictionary(written: Written) -> None:
    with opened(written.archive.root) as db:
        for table in TABLES:
            described = db.execute(f"DESCRIBE {table.name}").fetchall()
            wanted = [(name, duckdb_type(kind)) for name, kind, _ in table.columns]
            assert [(name, kind.replace('"', "")) for name, kind, *_ in described] == [
                (n, k.replace('"', "")) for n, k in wanted
            ], table.name


def test_an_event_that_came_twice_is_told_once_and_the_signed_one(written: Written) -> None:
    assert ask(written, "select id, signature, event_date, seg from events order by id, seg") == [
        {"id": "a", "signature": "ok", "event_date": "2026-03-09", "seg": "c-2026-03-09"},
        {"id": "b", "signature": "ok", "event_date": "2026-03-09", "seg": "c-2026-03-09"},
        {"id": "c", "signature": "ok", "event_date": "2026-03-10", "seg": "0000000001-run"},
        {"id": "d", "signature": "ok", "event_date": "2026-03-10", "seg": "0000000001-run"},
    ]
    assert ask(written, "select count(*) as n from raw_events") == [{"n": 6}]
    assert ask(written, "select line, reason = 'not JSON' as bad from bad_lines") == [{"line": '{"v":1', "bad": True}]
    assert ask(written, "select sum(events) as n, count(*) as parts from segments") == [{"n": 6, "parts": 4}]


def test_an_unsigned_event_that_is_compacted_stands_for_no_signed_one(tmp_path: Path) -> None:
    made = Written(tmp_path)
    made.compact(
        "2026-03-09", [event("a", 1, signature="none"), event("b", 1, signature=None)], made.put(event("z", 1))
    )
    made.put(event("a", 1), event("b", 1))
    rows = ask(made, "select id, signature from events order by id, signature")
    assert [(row["id"], row["signature"]) for row in rows] == [("a", "none"), ("a", "ok"), ("b", None)]


def test_times_numbers_and_nested_values_come_as_json_has_them(written: Written) -> None:
    made = Written(written.archive.root)
    made.put(event("e", 30, headers=[("x", "1")], deaths=[{"queue": "q", "count": 2}], props={"timestamp_s": 2**63}))
    (row,) = ask(
        made,
        "select event_ts, headers, deaths[1].count as n, props.timestamp_s as s, 0.0 / 0 as no from events"
        " where id = 'e'",
    )
    assert row == {"event_ts": "2026-03-10T06:00:00+00:00", "headers": {"x": "1"}, "n": 2, "s": 2**63, "no": "NaN"}
    assert ask(made, "select 1 where false") == []
    assert ask(made, "select 1 / 0 as x, null as y, '' as z", "csv") == "x,y,z\nInfinity,,\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select * form events", ("syntax error", "LINE 1: select * form events", "^")),
        ("select nope from events", ('"nope" not found', "LINE 1", "^")),
        ("select * from nope", ("nope does not exist", "tables: events, letters, groups")),
        ("select 1; select 2", ("one SELECT", "SELECT, SELECT")),
        ("", ("one SELECT", "nothing")),
        ("delete from events", ("one SELECT", "DELETE")),
        ("create table x as select 1", ("one SELECT", "CREATE")),
        ("explain analyze copy (select 1) to 'x'", ("one SELECT", "EXPLAIN")),
        ("set enable_external_access = true", ("one SELECT", "SET")),
        ("install httpfs", ("one SELECT", "LOAD")),
        ("select 1 as a, 2 as a", ("several columns 'a'",)),
        ("select 'x\x1b[31m' form events", ("syntax error", "\\x1b[31m")),
        ("select cast('x' as int)", ("Could not convert",)),
        ("select * from events where id = $1", ("parameters",)),
    ],
)
def test_bad_sql_is_refused_with_what_is_wrong_and_where(written: Written, text: str, said: tuple[str, ...]) -> None:
    message = refused(written, text)
    assert [part for part in said if part not in message] == [], message


@pytest.mark.slow
def test_no_sql_writes_a_file_or_reads_one_that_is_not_of_the_archive(written: Written, tmp_path: Path) -> None:
    secret, target = tmp_path / "secret.csv", tmp_path / "out.csv"
    secret.write_text("a\nhunter2\n", encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    Written(other).put(event("hunter2"))
    (inner,) = other.glob("raw/*/*/*.parquet")
    path = str(written.archive.files()[0]).replace("'", "''")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    tries = [
        f"from read_csv('{secret}')", f"from read_text('{secret}')", f"from '{secret}'",
        f"from read_parquet('{inner}')", "from duckdb_extensions()",
        f"from read_blob('{path}/../../../../../secret.csv')",
        f"from parquet_metadata('{inner}')", "from glob('/etc/*')", f"from sniff_csv('{secret}')",
        f"copy (select 1) to '{target}'", f"attach '{target}'", f"export database '{target}'",
        "from query('copy (select 1) to ''out.csv''')", "from duckdb_secrets()", "from read_json('https://localhost/x')",
        "select * from secret", "select getenv('HOME')",
    ]  # fmt: skip
    for text in tries:
        assert "hunter2" not in refused(written, text), text
    with opened(written.archive.root) as db:  # and behind the look at the kind of statement
        for text in (
            f"COPY (SELECT 1) TO '{path}'",
            f"COPY (SELECT 1) TO '{target}' (USE_TMP_FILE false)",
            f"ATTACH '{target}'",
            "SET enable_external_access = true",
            "LOAD httpfs",
        ):
            with pytest.raises(Exception, match=r"disabled|locked"):
                db.execute(text)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_hostile_text_in_cells_commands_nothing(written: Written) -> None:
    made = Written(written.archive.root)
    made.put(event("=cmd|' /C calc'!A0", 30, detail='a\x1b[2Jb,"c"\n-', attempts=-1))
    wanted = "select id, detail, attempts from events where detail is not null"
    assert ask(made, wanted, "csv") == 'id,detail,attempts\n\'=cmd|\' /C calc\'!A0,"a\x1b[2Jb,""c""\n-",-1\n'
    assert ask(made, wanted) == [{"id": "=cmd|' /C calc'!A0", "detail": 'a\x1b[2Jb,"c"\n-', "attempts": -1}]
    shown = pipeline(made, "sql", wanted)
    assert "\\x1b[2Jb" in shown.stdout
    assert "\x1b" not in shown.stdout + pipeline(made, "sql", wanted, "--format", "json").stdout


def test_a_table_has_an_end_and_says_so(written: Written) -> None:
    shown: list[Any] = []
    assert (
        run(written.archive.root, "from range(1000)", "table", io.StringIO(), lambda *table: shown.append(table))
        is False
    )
    assert (
        run(written.archive.root, "from range(1001)", "table", io.StringIO(), lambda *table: shown.append(table))
        is True
    )
    assert [len(rows) for _, rows in shown] == [TABLE_ROWS, TABLE_ROWS]


def test_an_archive_of_other_versions_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Of before signatures, in folders without _; and of a version whose files have another type and another column."""
    old = pa.schema([column for column in STORED if column.name not in {"signature", "breaker"}])
    made = Written(tmp_path, old)
    made.put(event("a", 1), bad=[b"x"])
    for name in ("manifest", "bad"):
        (tmp_path / f"_{name}").rename(tmp_path / name)
    assert ask(made, "select id, signature, breaker from events") == [{"id": "a", "signature": None, "breaker": None}]
    assert ask(made, "select count(*) as n from bad_lines") == [{"n": 1}]
    new = [pa.field("attempts", pa.string()) if column.name == "attempts" else column for column in STORED]
    tomorrow = Written(tmp_path, pa.schema([*new, pa.field("mood", pa.string()), pa.field("seg", pa.string())]))
    tomorrow.put(event("b", 2, attempts="7", mood="good", seg="forged"), event("c", 3, attempts="many"), int96=False)
    assert ask(made, "select id, attempts, mood, seg from events order by id") == [
        {"id": "a", "attempts": 1, "mood": None, "seg": "0000000000-run"},
        {"id": "b", "attempts": 7, "mood": "good", "seg": "0000000001-run"},
        {"id": "c", "attempts": None, "mood": None, "seg": "0000000001-run"},
    ]


def test_members_of_nested_columns_go_by_their_names(tmp_path: Path) -> None:
    """Of a version that adds some, lacks some, has them in another order, or has a text where there was none."""
    props = pa.struct(
        [("mood", pa.string()), ("type", pa.string()), ("message_id", pa.string()), ("priority", pa.string())]
    )
    deaths = pa.list_(pa.struct([("count", pa.int64()), ("weight", pa.int64()), ("queue", pa.string())]))
    kinds = {"props": props, "deaths": deaths, "error": pa.string()}
    later = Written(
        tmp_path, pa.schema([pa.field(column.name, kinds.get(column.name, column.type)) for column in STORED])
    )
    values = {"message_id": "m", "mood": "good", "type": "t", "priority": "7"}
    later.put(
        event("a", 1, props=values, deaths=[{"queue": "q", "count": 2, "weight": 9}], error="text"), event("b", 2)
    )
    text = "props.message_id as m, props.priority as p, props.app_id as app, deaths, error from events order by id"
    death = dict.fromkeys(["queue", "reason", "count", "time_ms", "exchange", "routing_keys", "original_expiration"])
    assert ask(later, f"select {text}") == [
        {"m": "m", "p": 7, "app": None, "deaths": [death | {"queue": "q", "count": 2}], "error": None},
        {"m": None, "p": None, "app": None, "deaths": None, "error": None},
    ]


def test_events_whose_file_is_lost_are_not_left_out_in_silence(written: Written) -> None:
    for file in written.archive.parts()[-1].files:
        file.unlink()
    message = refused(written, "select count(*) from events")
    assert "seg=0000000002-run: none of its files is there, of 1 events" in message
    assert "pipeline verify" in message


def test_what_ingest_writes_of_both_formats_of_the_journal_is_read(tmp_path: Path) -> None:
    made, texts = Written(tmp_path / "archive"), [line(letter(id=name * 32), now_ms=MONDAY_MS) for name in "abc"]
    bodies = [texts[0], rows_of(texts[1:]), b"x\n"]
    made.ingest(messages(*bodies))
    wanted = [row for row in rows(*bodies) if "event_id" in row]
    names = ("event_id", "id", "kind", "failed_queue", "ts_ms", "attempts", "signature", "fingerprint", "offset", "idx")
    assert ask(made, f'select {", ".join(map(quoted, names))} from events order by "offset", idx') == [
        {name: row[name] for name in names} for row in wanted
    ]
    assert ask(made, "select count(*) as n, min(reason) as why from bad_lines") == [
        {"n": 1, "why": "not a JSON object with an event"}
    ]
    assert len(ask(made, "from letters")) == 3


def test_names_of_headers_that_are_equal_as_text_keep_nobody_from_reading(tmp_path: Path) -> None:
    """Half of a pair of surrogates becomes "?", and DuckDB refused the whole column for a name that came twice."""
    made, text = Written(tmp_path / "archive"), line(letter(id="a" * 32), now_ms=MONDAY_MS)
    headers = rb'"headers":{"x\ud800":"1","y":"2","x\udbff":"3"}'
    made.ingest(messages(text.replace(b'{"v":1', b'{"v":1,' + headers), line(letter(id="b" * 32), now_ms=MONDAY_MS)))
    told = ask(made, "select headers from events order by id")
    assert told == [{"headers": {"x?": "3", "y": "2"}}, {"headers": None}]


def test_notes_of_a_format_of_tomorrow_and_no_archive_are_said(tmp_path: Path, written: Written) -> None:
    note, (broken, *_) = written.archive.manifest(2), written.archive.files()
    note.write_text(note.read_text(encoding="utf-8").replace('"format": 1', '"format": 9'), encoding="utf-8")
    assert "format 9; this version of dlx-router knows 1" in refused(written, "select 1")
    note.write_text(note.read_text(encoding="utf-8").replace('"format": 9', '"format": 1'), encoding="utf-8")
    broken.write_bytes(b"PAR1")
    assert "pipeline verify" in refused(written, "select 1")
    assert "no such folder" in refused(Written(tmp_path / "none"), "select 1")
    assert ask(Written(tmp_path / ""), "select count(*) as n from letters") == [{"n": 0}]


def pipeline(made: Written, *args: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "dlx_router", "pipeline", *args, "--archive", str(made.archive.root)]
    nowhere = {"JAVA_HOME": str(made.archive.root), "PATH": "/usr/bin:/bin"}  # Spark would not start
    return subprocess.run(argv, env=nowhere, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_command_prints_a_table_and_ends_with_2_for_what_is_wrong(written: Written) -> None:
    done = pipeline(written, "sql", "select failed_queue, count(*) as n from events group by all order by n desc")
    assert (done.returncode, done.stdout) == (0, "failed_queue  n\norders        3\nmail          1\n")
    wrong = pipeline(written, "sql", "select nope from events")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "LINE 1: select nope from events" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert pipeline(written, "sql", "select 1", "--format", "xml").returncode == 2
    assert json.loads(pipeline(written, "sql", "select 1 as n, null as no", "--json").stdout) == [{"n": 1, "no": None}]
    assert pipeline(written, "sql", "select 1", "--json", "--format", "csv").returncode == 2
    argv = (
        f"{sys.executable} -m dlx_router pipeline sql --format csv 'from range(1000000)' --archive {ROOT} | head -n 2"
    )
    cut = subprocess.run(["bash", "-c", argv], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (cut.stdout, cut.stderr) == ("range\n0\n", "")


def test_a_table_at_a_narrow_terminal_has_a_line_for_each_letter_and_breaks_no_id(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    argv = ["pipeline", "sql", "from letters order by id", "--archive", str(written.archive.root)]
    with pytest.raises(SystemExit) as ended, redirect_stdout(Terminal()) as shown:
        main(argv)
    assert ended.value.code == 0
    titles, *lines = shown.getvalue().splitlines()
    assert "redrive_id" in titles
    ids = [row["id"] for row in ask(written, "from letters order by id")]
    assert [line.split()[1] for line in lines] == ids


def test_a_folder_where_nothing_was_ingested_is_said(tmp_path: Path) -> None:
    done = pipeline(Written(tmp_path), "sql", "select count(*) as n from events", "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "n\n0\n")
    assert done.stderr == f"--archive {tmp_path}: nothing was ingested there yet, so every table is empty\n"


def test_without_duckdb_it_says_what_to_install(written: Written) -> None:
    code = "import sys; sys.modules['duckdb'] = None; from dlx_router.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "pipeline", "sql", "select 1", "--archive", str(written.archive.root)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the pipeline needs the extra `spark`" in done.stderr


@pytest.mark.parametrize("name", ["due_ms", "first_death_ms"])
@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63)])
def test_an_event_whose_times_are_none_ends_no_query(written: Written, name: str, ms: int) -> None:
    written.put(event("forged", 30, kind="retried", signature="none", **{name: ms}))
    assert ask(written, "select count(*) as n from letters") == [{"n": 5}]
    took = "max(recovered_ms - first_death_ms) as slowest_ms"  # as docs/pipeline-sql.md asks
    (answer,) = ask(written, f"select {took} from letters where outcome = 'recovered' and id = 'forged'")
    assert answer == {"slowest_ms": 0 if name == "due_ms" else None}
    assert [row["letters"] for row in Aggregates(written.archive.root).groups()]
    assert Aggregates(written.archive.root).hours()


def test_a_folder_whose_name_is_a_pattern_is_read_and_no_other(tmp_path: Path) -> None:
    other, made = Written(tmp_path / "archive1"), Written(tmp_path / "archive[1]")
    other.put(event("erased", 1))
    made.put(event("kept", 1))
    assert ask(made, "select id from events") == [{"id": "kept"}]
    assert Aggregates(made.archive.root).groups()[0]["sample_ids"] == ["kept"]


_EXACT = (
    ("12345678901234567890.12345678901234567::decimal(38,17)", "12345678901234567890.12345678901234567"),
    ("2::decimal(4,2)", "2.00"),
    ("0::decimal(30,20)", "0.00000000000000000000"),
    ("-170141183460469231731687303715884105727::hugeint", "-170141183460469231731687303715884105727"),
    ("9007199254740993::bigint", "9007199254740993"),
    ("18446744073709551615::ubigint", "18446744073709551615"),
    ("[1.10::decimal(30,20)]", "[1.10000000000000000000]"),
    ("0.1::double", "0.1"),
)
_NAMED = (
    ("'nan'::double", "NaN"),
    ("1 / 0", "Infinity"),
    ("-1 / 0", "-Infinity"),
    ("date '2026-03-10'", "2026-03-10"),
    ("timestamptz '2026-03-10 01:02:03.5+00'", "2026-03-10T01:02:03.500000+00:00"),
    ("'infinity'::timestamp", "infinity"),
    ("'\\xFFa'::blob", "\\xffa"),
)


@pytest.mark.parametrize(("sql", "told"), _EXACT)
def test_numbers_keep_all_their_digits(written: Written, sql: str, told: str) -> None:
    assert ask(written, f"select {sql} as x", "csv") == f"x\n{told}\n"
    out = io.StringIO()
    run(written.archive.root, f"select {sql} as x", "json", out, lambda *_: None)
    assert out.getvalue() == f'[\n{{"x": {told}}}\n]\n'


@pytest.mark.parametrize(("sql", "told"), _NAMED)
def test_what_is_no_number_has_its_name_and_times_are_those_of_iso(written: Written, sql: str, told: str) -> None:
    assert ask(written, f"select {sql} as x", "csv") == f"x\n{told}\n"
    assert ask(written, f"select {sql} as x, null as y, {{'a': [{sql}]}} as z") == [
        {"x": told, "y": None, "z": {"a": [told]}}
    ]


def test_names_in_a_map_are_written_as_values_are(written: Written) -> None:
    maps = "map([true], [0::decimal(30,20)]) as x, map([0::decimal(30,20)], [date '2026-03-10']) as y"
    assert ask(written, f"select {maps}") == [{"x": {"true": 0}, "y": {"0.00000000000000000000": "2026-03-10"}}]


def test_a_blob_runs_no_formula_and_commands_nothing(written: Written) -> None:
    assert ask(written, "select '=cmd()'::blob as x", "csv") == "x\n'=cmd()\n"
    assert "\x1b" not in pipeline(written, "sql", "select '\\x1B[2J'::blob as x").stdout


def test_no_cell_of_csv_begins_a_row(written: Written) -> None:
    text = ask(written, "select 'a' || chr(13) || '=cmd()' as x, '' as y", "csv")
    assert text == 'x,y\n"a\r=cmd()",\n'
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["x", "y"], ["a\r=cmd()", ""]]
