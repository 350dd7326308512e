"""How often a router says in the journal what is in force."""

from dlx_router.service.upkeep.revision_audits import AN_HOUR_S, MOST_AN_HOUR, Recent


def test_policies_that_change_all_the_time_are_written_so_often_an_hour_and_no_more() -> None:
    recent = Recent()
    written = [second for second in range(0, 4 * int(AN_HOUR_S), 2) if recent.may_write(float(second))]
    assert len(written) == 4 * MOST_AN_HOUR
    assert all(after - before >= AN_HOUR_S for before, after in zip(written, written[MOST_AN_HOUR:], strict=False))
