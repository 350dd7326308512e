"""Times in the zone that a person chose: none is ambiguous, and what is kept and asked of the router is the same."""

import re
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from dlx_router.console import zones
from dlx_router.console.forms import moment_field, moment_ms, twice
from dlx_router.console.rendering import ago, when
from dlx_router.console.zones import ZoneError, known, named, shown_in, stamp
from tests.console.liar import WHEN, Liar, console, csrf, logged_in
from tests.console.test_pages import harmless
from tests.console.test_rendering import HOSTILE, Read

BERLIN: Final = "Europe/Berlin"
GAP: Final = "2026-03-29T02:30:00"
TWICE: Final = "2026-10-25T02:30:00"
PLACES: Final = (
    "UTC",
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Africa/Monrovia",
)
SECONDS: Final = st.integers(1, 253_402_300_798 - 86_400)  # up to the last day that there is


@given(SECONDS, st.sampled_from(PLACES))
def test_a_shown_time_is_one_moment_whatever_the_zone(second: int, zone: str) -> None:
    with shown_in(zone):
        text = stamp(second * 1000 + 7)
        (machine,) = re.findall('datetime="([^"]+)"', when(second * 1000 + 7))
        assert f">{text}</time>" in when(second * 1000 + 7)
        assert f'title="{text}"' in ago(second * 1000 + 7)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=second * 1000 + 7)
    assert datetime.fromisoformat(machine) == moment
    assert machine.endswith("+00:00")
    assert datetime.fromisoformat(text.replace(" UTC", "+00:00").replace(" +", "+").replace(" -", "-")) == moment


@given(SECONDS, st.sampled_from(PLACES))
def test_a_field_of_any_zone_gives_back_its_second_unless_the_clock_shows_it_twice(second: int, zone: str) -> None:
    field = moment_field(str(second * 1000 + 999), zone)
    readings = {moment_ms(field, zone), moment_ms(field, zone, is_end=True)}
    assert str(second * 1000) in readings
    assert (len(readings) == 2) == bool(twice(field, zone))


@given(st.datetimes(), st.sampled_from(PLACES))
def test_every_local_time_is_a_moment_that_this_clock_shows_or_is_skipped(local: datetime, zone: str) -> None:
    try:
        ms = int(moment_ms(local.isoformat(), zone))
    except ZoneError:
        assert (
            local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            != local
        )
        return
    if 0 < ms < zones.LATEST_MS - 86_400_000:
        assert moment_field(str(ms), zone) == local.replace(microsecond=0).isoformat()


def test_a_time_that_the_clocks_skip_says_so_and_what_to_write() -> None:
    with pytest.raises(ZoneError) as error:
        moment_ms(GAP, BERLIN)
    assert str(error.value) == (
        "the clocks of Europe/Berlin skip 2026-03-29 02:30:00: they go from +01:00 to +02:00;"
        " write 01:30:00 or 03:30:00"
    )
    assert moment_ms(f"{GAP}+01:00", BERLIN) == "1774747800000", "with an offset it is a moment"
    assert moment_ms(GAP) == "1774751400000", "in UTC no clock is changed"


def test_a_time_that_the_clocks_have_twice_takes_in_both_hours_and_says_so() -> None:
    assert int(moment_ms(TWICE, BERLIN, is_end=True)) - int(moment_ms(TWICE, BERLIN)) == 3_600_000
    assert "the first is taken, +02:00" in twice(TWICE, BERLIN)
    assert "the second is taken, +01:00" in twice(TWICE, BERLIN, is_end=True)
    assert [twice(text, BERLIN) for text in (f"{TWICE}+02:00", "2026-10-25T04:30", "1774747800000", "yesterday")] == [
        ""
    ] * 4
    assert twice(TWICE, "UTC") == ""


def test_zones_are_found_by_name_and_only_in_the_list() -> None:
    assert (known("europe/berlin"), known(" America/New York "), known("utc")) == (BERLIN, "America/New_York", "UTC")
    for name in (
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "posix/UTC",
        "tzdata.zi",
        "",
        "x" * 100_000,
        *HOSTILE,
    ):
        assert known(name) is None, name
        with shown_in(name):
            assert zones.current() == "UTC", "a cookie of nonsense is none"
        with pytest.raises(ZoneError):
            named(name)
    with pytest.raises(ZoneError, match=r"there is no time zone 'Europe/Berln'; .* Did you mean Europe/Berlin"):
        named("Europe/Berln")


def test_a_zone_whose_file_went_since_the_list_was_read_is_shown_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for a moment while the system's package is renewed: no page is lost by it."""
    assert "Asia/Tokyo" in zones.names()
    for package in ("tzdata", "tzdata.zoneinfo", "tzdata.zoneinfo.Asia"):
        monkeypatch.setitem(sys.modules, package, None)
    there = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath(to=["/nowhere"])
        ZoneInfo.clear_cache()
        with shown_in("Asia/Tokyo"):
            assert (zones.current(), stamp(WHEN)[-3:]) == ("UTC", "UTC")
    finally:
        zoneinfo.reset_tzpath(to=there)


def test_without_a_database_there_is_utc_and_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "names", lambda: ("UTC",))
    monkeypatch.setattr(zones, "_by_word", lambda: {"utc": "UTC"})
    assert named("utc") == "UTC"
    with pytest.raises(ZoneError, match="no time zone database, so there is only UTC; install the package tzdata"):
        named(BERLIN)
    with shown_in(BERLIN):  # chosen while there was one
        assert stamp(WHEN) == "2023-11-14 22:13:20.000 UTC"


async def chosen(app: ASGIApp, zone: str) -> tuple[int, str]:
    """What a person gets who chooses this zone on its page."""
    async with logged_in(app) as client:
        page = harmless(await client.get("/time-zone?back=/letters"))
        assert ("input", BERLIN) not in [(tag, attrs.get("value")) for tag, attrs in page.elements]
        form = {"csrf": csrf((await client.get("/time-zone")).text), "back": "/letters", "zone": zone}
        answer = await client.post("/time-zone", data=form)
        if answer.status_code != 303:
            harmless(answer)
            return answer.status_code, answer.text
        return 303, f"{answer.headers['location']} {answer.headers['set-cookie']}"


async def test_a_chosen_zone_is_kept_in_a_cookie_that_no_script_reads_and_a_wrong_one_is_told() -> None:
    status, answer = await chosen(console(Liar()), "europe/berlin")
    assert (status, answer.split()[0]) == (303, "/letters")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {*answer.split("; ")}
    for wrong in ("Mars/Olympus", "<script>", "../x", ""):
        status, answer = await chosen(console(Liar()), wrong)
        assert (status, "there is no time zone" in answer) == (422, True)


async def test_pages_show_the_zone_of_their_reader_and_files_and_commands_do_not() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        before = (await client.get("/letters?format=csv")).text
        plain = (await client.get("/letters")).text
        assert "2023-11-14 22:13:20.000 UTC" in plain
        client.cookies.set("dlx_zone", BERLIN)
        for path in (
            "/",
            "/groups",
            "/groups/g1-1",
            "/letters",
            "/letters/4f2445e91123",
            "/tasks",
            "/audit",
            "/searches",
        ):
            page = await client.get(path)
            times = [attrs for tag, attrs in Read(page.text).elements if tag == "time"]
            assert times, path
            assert all(str(attrs["datetime"]).endswith("+00:00") for attrs in times)
            assert "2023-11-14 23:13:20.000 +01:00" in page.text, path
            assert "20.000 UTC" not in page.text, path
            assert "back=" in page.text
            assert f">{BERLIN}</a>" in page.text, "and it says which zone that is"
        assert (await client.get("/letters?format=csv")).text == before
        client.cookies.set("dlx_zone", "Mars/Olympus")
        assert "2023-11-14 22:13:20.000 UTC" in (await client.get("/letters")).text


async def test_a_search_says_its_zone_in_its_address_so_a_link_means_the_same_to_everybody() -> None:
    ms = moment_ms("2026-01-31T13:00:00", BERLIN)
    async with logged_in(console(Liar())) as client:
        for cookie, shown in (("UTC", "2026-01-31T12:00:00"), (BERLIN, "2026-01-31T13:00:00")):
            client.cookies.set("dlx_zone", cookie)
            for given in (f"since_ms=2026-01-31T13:00:00&zone={BERLIN}", "since_ms=2026-01-31T12:00", f"since_ms={ms}"):
                page = (await client.get(f"/letters?{given}")).text
                assert f'name="since_ms" value="{shown}"' in page, (cookie, given)
                assert "--since 2026-01-31T12:00:00Z" in page
                assert (f'name="zone" value="{BERLIN}"' in page) == (cookie == BERLIN)
                assert f"Since, {cookie}<" in page


async def test_a_search_by_a_time_that_is_none_or_two_says_so_beside_the_form_and_to_a_script() -> None:
    liar = Liar()
    async with logged_in(console(liar)) as client:
        client.cookies.set("dlx_zone", BERLIN)
        page = await client.get(f"/letters?since_ms={GAP}&zone={BERLIN}&queue=orders")
        harmless(page)
        assert (page.status_code, "skip 2026-03-29 02:30:00" in page.text) == (200, True)
        assert f'value="{GAP}"' in page.text, "to be changed"
        script = await client.get(f"/letters?since_ms={GAP}&zone={BERLIN}&format=json")
        assert (script.status_code, "skip" in script.json()["error"]) == (422, True)
        page = await client.get(f"/letters?until_ms={TWICE}&zone={BERLIN}")
        assert "twice, at +02:00 and at +01:00; the second is taken" in page.text
        page = await client.get("/letters?since_ms=2026-01-31T12:00&zone=Mars/Olympus")
        assert (page.status_code, "there is no time zone" in page.text) == (200, True)
