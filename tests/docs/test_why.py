"""docs/why.md: what the comparison says of dlx-router is what runs. Each row has tests, and they are there."""

import re
from typing import Final

import pytest

from tests.docs.pages import ROOT

PAGE: Final = (ROOT / "docs/why.md").read_text(encoding="utf-8")
NONE: Final = "–"
TESTS: Final = {
    "waits grow between tries": "core/test_backoff.py::test_at_the_cap_the_crowd_spreads_below_it",
    "an outage costs no attempts": "service/test_outage.py::test_an_outage_uses_no_attempts",
    "policies checked before they hold": "config/lint/test_lint.py::test_lint_says_what_policies_mean_together",
    "sent back by a filter": "redrive/test_redrive.py::"
    "test_a_filter_takes_what_it_means_and_the_rest_stays_in_its_order",
    "at a pace": "redrive/test_rates.py::test_a_rate_is_kept_within_five_percent_over_a_minute",
    "counted before anything moves": "redrive/test_redrive.py::test_a_dry_run_counts_by_group_and_moves_nothing",
    "some first, the rest if they live": "redrive/test_redrive.py::test_the_canary_stops_by_itself_and_says_why",
    "stopped in the middle": "redrive/test_redrive.py::test_paused_letters_are_back_and_resumed_ones_go_on",
    "changed, then sent back": "console/test_real_router.py::"
    "test_one_letter_goes_back_by_one_button_and_another_one_changed",
    "whether it helped": "index/test_commands.py::test_a_letter_says_whether_sending_it_back_helped",
    "failures grouped by error": "index/test_commands.py::"
    "test_deaths_that_consumers_declare_are_grouped_by_their_error",
    "errors without a change of handlers": "clients/test_errors.py::test_what_ends_a_handler_is_told",
    "a web page": "console/test_browser.py::test_a_newcomer_with_the_mouse_alone_sends_back_what_failed",
    "links, notes, CSV": "console/test_pages.py::test_every_list_is_a_file_too",
    "search by words": "index/test_index.py::test_words_find_letters",
    "a look leaves no trace": "index/test_index.py::test_a_letter_is_found_with_its_journey_and_body",
    "chats and programs are told": "service/upkeep/test_webhooks.py::"
    "test_what_happens_is_told_with_page_and_command_and_nothing_is_sent_inside",
    "received one by one, with leases": "leases/test_leases.py::"
    "test_letters_come_the_oldest_first_whole_and_are_nobody_elses",
    "an archive to query": "spark/test_ingest.py::test_each_event_is_archived_once_for_every_engine_run_after_run",
    "who did what": "index/test_commands.py::test_audits_say_who_did_what",
}


def rows() -> dict[str, list[str]]:
    """The comparison: its first column → the others."""
    table = PAGE.partition("## Side by side")[2].partition("\n\n| ")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]
    return {line[0]: line[1:] for line in lines}


def test_each_row_of_the_comparison_has_a_test_and_each_test_a_row() -> None:
    assert [*rows()] == [*TESTS]
    assert {len(cells) for cells in rows().values()} == {6}


@pytest.mark.parametrize("row", TESTS)
def test_what_a_row_says_of_dlx_router_is_run_and_leads_to_its_page(row: str) -> None:
    path, _, name = TESTS[row].partition("::")
    source = (ROOT / "tests" / path).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}", source, re.MULTILINE), TESTS[row]
    own = rows()[row][0]
    assert own != NONE
    assert re.search(r"\]\([a-z-]+\.md", own), own
