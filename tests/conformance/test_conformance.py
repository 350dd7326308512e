"""Each scenario ends the same natively and through the router, but for what it declares; the page says so."""

from collections import Counter

import pytest
from _pytest.mark import ParameterSet

from tests.conformance import page
from tests.conformance.conftest import Run
from tests.conformance.differences import judge
from tests.conformance.scenario import VERSIONS, Scenario
from tests.conformance.scenarios import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first one plays them all


def _row(scenario: Scenario) -> ParameterSet:
    marks = [pytest.mark.xfail(strict=True, reason=scenario.bug)] if scenario.bug else []
    return pytest.param(scenario, id=scenario.prefix, marks=marks)


def check(run: Run, scenario: Scenario) -> None:
    """AssertionError says in which world it went wrong, or what differs."""
    native, routed = run.native[scenario.prefix], run.routed[scenario.prefix]
    for world, played in (("native", native), ("routed", routed)):
        if played.error is not None:
            raise AssertionError(f"{world}: {played.error}") from played.error
    judge(native.outcome, routed.outcome, scenario.differences(run.version), scenario.possible(run.version))


@pytest.mark.parametrize("scenario", [_row(scenario) for scenario in SCENARIOS])
def test_both_worlds_end_the_same(run: Run, scenario: Scenario) -> None:
    if scenario.prefix not in run.native:
        pytest.skip("needs a broker whose settings may be changed")
    check(run, scenario)


def test_the_page_says_what_was_seen(run: Run) -> None:
    if run.version not in VERSIONS:
        pytest.skip(f"the page has no column for RabbitMQ {run.version}")
    text = page.renewed(
        run.version,
        {page.label(scenario): _seen(run, scenario) for scenario in SCENARIOS if scenario.prefix in run.native},
    )
    if page.WRITE:
        page.PAGE.write_text(text, encoding="utf-8")
    assert page.PAGE.read_text(encoding="utf-8") == text


def _seen(run: Run, scenario: Scenario) -> str:
    try:
        check(run, scenario)
    except AssertionError:
        return f"**not equal**: {scenario.bug or 'see the test'}"
    return page.cell(scenario, run.version)


def test_names_of_scenarios_are_their_own() -> None:
    for name in ("prefix", "number"):
        twice = [
            value for value, times in Counter((getattr(row, name), row.kind) for row in SCENARIOS).items() if times > 1
        ]
        assert not twice, f"two scenarios of one {name}"


def test_what_is_declared_has_to_be_seen_and_what_is_possible_need_not() -> None:
    judge({}, {}, ("field order",), possible=("field order",))
    with pytest.raises(AssertionError, match="declared, but not seen: field order"):
        judge({}, {}, ("field order",))
