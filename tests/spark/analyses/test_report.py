"""The page: drawn by a browser, light and dark, wide and narrow; nothing from elsewhere, nothing of letters obeyed."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from dlx_router.spark.advice.evidence import Key
from dlx_router.spark.report.by_spark import gather
from dlx_router.spark.report.data import ReportData
from dlx_router.spark.report.drawing import shown
from dlx_router.spark.report.page import page
from dlx_router.spark.report.words import duration, number, percent
from tests.conftest import MUST
from tests.spark.rows import AS_OF_MS
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
PROBE = """<script>document.title = JSON.stringify({
  overflow: document.documentElement.scrollWidth - innerWidth, svgs: document.querySelectorAll('svg').length,
  empty: [...document.querySelectorAll('svg')].filter(one => one.getBoundingClientRect().height < 20).length,
  unlabelled: [...document.querySelectorAll('svg')].filter(one => !one.getAttribute('aria-labelledby').split(' ').every(
    name => document.querySelectorAll('#' + name).length === 1 && document.getElementById(name).textContent)).length,
  sticking: [...document.querySelectorAll('.card,.small>div,.tile')].filter(one =>
    one.getBoundingClientRect().right > (one.closest('section') || document.body).getBoundingClientRect().right).length,
  small: [...document.querySelectorAll('svg text')].filter(one => one.getBoundingClientRect().height < 9).length,
  outside: [...document.querySelectorAll('svg text')].filter(one => {
    const a = one.getBoundingClientRect(), b = one.ownerSVGElement.getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1 }).map(one => one.textContent),
  ink: getComputedStyle(document.body).color, dark: matchMedia('(prefers-color-scheme: dark)').matches})</script>"""


@pytest.fixture(scope="module")
def data(events: DataFrame) -> ReportData:
    return gather(events, title="A week", as_of_ms=AS_OF_MS)


@pytest.fixture(scope="module")
def chromium() -> str:
    browser = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if browser is None:
        why = "no Chromium to draw the page: apt-get install chromium"
        raise pytest.fail.Exception(why) if MUST else pytest.skip.Exception(why)
    return browser


def seen(chromium: str, folder: Path, html: str, *, width: int, dark: bool = False) -> dict[str, object]:
    """What a browser of this width says of the page."""
    if dark:
        html = html.replace("@media(prefers-color-scheme:dark)", "@media all")
    (folder / "page.html").write_text(html.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
            f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom",
            (folder / "page.html").as_uri()]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    document: dict[str, object] = json.loads(title[1].replace("&gt;", ">").replace("&amp;", "&"))
    return document


@pytest.mark.slow
def test_a_browser_draws_every_chart(chromium: str, data: ReportData, tmp_path: Path) -> None:
    drawn = seen(chromium, tmp_path, page(data), width=1240)
    assert drawn["svgs"] == 4 + 5  # over time, fates, times, budgets; one for each queue that retries
    assert (drawn["empty"], drawn["unlabelled"], drawn["outside"], drawn["small"]) == (0, 0, [], 0)
    assert drawn["overflow"] <= 0  # type: ignore[operator]  # a number


@pytest.mark.slow
def test_the_page_fits_a_telephone_and_the_dark(chromium: str, data: ReportData, tmp_path: Path) -> None:
    light = seen(chromium, tmp_path, page(data), width=500)
    dark = seen(chromium, tmp_path, page(data), width=500, dark=True)
    assert light["overflow"] <= 0  # type: ignore[operator]  # a number
    assert light["ink"] != dark["ink"]
    page_of_320 = page(data).replace("</head>", "<style>body{width:320px}</style></head>")
    narrow = seen(chromium, tmp_path, page_of_320, width=500)  # no window is narrower
    assert (narrow["sticking"], narrow["small"], narrow["outside"]) == (0, 0, [])


def test_the_page_needs_nothing_from_elsewhere(data: ReportData) -> None:
    html = page(data)
    assert not re.search(r'(?:src|href)\s*=(?!"#)|url\(|@import|<script', html)
    assert "http://" not in html
    assert "https://" not in html


def test_what_letters_say_is_text(data: ReportData) -> None:
    evil = "<script>alert(1)</script>\"'&"
    rows = [row | {"failed_queue": evil, "reason": evil} for row in data.recovery]
    groups = [row | {"error_template": evil, "error_type": evil, "fingerprint": evil} for row in data.groups]
    advice = [
        entry._replace(queue=evil, parts=tuple(part._replace(key=Key("/", evil, evil)) for part in entry.parts))
        for entry in data.advice
    ]
    html = page(replace(data, title=evil, recovery=rows, groups=groups, advice=advice))
    assert "<script" not in html
    assert "&lt;script&gt;" in html


NAMES = ("v1.23456", "#1a8f6e", "$x$ and $", "<b> & \"'", "\ud800\x01\u2028", "\U0001f4e6 \u4e2d\u6587", "n" * 255)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_every_name_of_a_queue_is_drawn_as_it_is(name: str, data: ReportData) -> None:
    rows = [row | {"failed_queue": name, "reason": name} for row in data.recovery]
    budgets = [row | {"failed_queue": name} for row in data.slo]
    html = page(replace(data, recovery=rows, slo=budgets))
    assert html.count(f">{escape(shown(name), quote=False)}</text>") >= len(rows) + len(budgets)
    assert len(shown(name)) <= 34
    assert f"{escape(name)}: " in html  # whole, for who rests the pointer there or listens


def test_the_same_data_make_the_same_page(data: ReportData) -> None:
    assert page(data) == page(data)


def test_nothing_recovered_and_nothing_tried_is_drawn_too(data: ReportData) -> None:
    none = [row | {"time_p50_ms": None, "recovered": 0, "by_redrive": 0} for row in data.recovery]
    bare = page(replace(data, recovery=none, efficacy=[], slo=[], trends=[], advice=[]))
    assert "What became of them" in bare
    assert "How long recovery took" not in bare
    page(replace(data, recovery=[], efficacy=[], slo=[row | {"burn": None} for row in data.slo], trends=[]))


def test_the_tiles_say_the_truth(data: ReportData, truth: week.Truth) -> None:
    html = page(data)
    by_retry = sum(fate.recovered_ms is not None for fate in truth.fates)
    saved = sum(fate.saved for fate in truth.fates)
    for value in (len(truth.fates), by_retry, saved, len(truth.fates) - by_retry - saved):
        assert f"<b>{number(value)}</b>" in html
    assert f"letters, {number(len(truth.fates))} of them failed for the first time" in html
    tried = sum(row["tried"] for row in data.efficacy)
    assert f"<b>{percent(1 - by_retry / tried)}</b><span>of {number(tried)} retries in vain" in html


def test_the_page_says_until_when_the_journal_is_told(data: ReportData) -> None:
    assert "Complete until 13 Oct 2026 00:00." in page(data)


@pytest.mark.slow
def test_missing_events_are_said(data: ReportData) -> None:
    assert "missing in the journal" not in page(data)
    assert "1,234 events of this time are missing" in page(replace(data, gaps=1234))


def test_nothing_to_report_says_what_to_do(events: DataFrame) -> None:
    with pytest.raises(ValueError, match="choose another --since"):
        gather(events.where("ts_ms < 0"), title="none")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (percent(None), "–"), (percent(0), "0 %"), (percent(1), "100 %"), (percent(0.99999), "> 99.9 %"),
        (percent(0.012), "1.2 %"), (percent(0.5), "50 %"), (number(1234567), "1,234,567"),
        (number(12_345_678), "12.3 M"),
        (duration(None), "–"), (duration(90_000), "1.5 min"), (duration(250), "250 ms"), (duration(86_400_000), "1 d"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(said: str, text: str) -> None:
    assert said == text
