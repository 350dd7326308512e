"""All scenarios, in the order of the page."""

from typing import Final

from tests.conformance import scenarios_deaths, scenarios_ways
from tests.conformance.scenario import Scenario

SCENARIOS: Final[list[Scenario]] = [*scenarios_deaths.scenario.rows, *scenarios_ways.scenario.rows]
