"""Thresholds of `alert:`, as the metric has them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dlx_router.config.alert_thresholds import thresholds
from dlx_router.config.policy_files.loader import load_policies

CASES = {
    "each kind that is set, and none of those that set none": (
        """
  - {name: quiet, match: "q.#", definition: {max-redrives: 1}}
  - {name: deep, match: "a.#", definition: {alert: {depth: 7}}}
  - {name: both, match: "b.#", definition: {alert: {depth: 3, oldest: 1500ms}}}
""",
        {("deep", "depth"): 7.0, ("both", "depth"): 3.0, ("both", "oldest"): 1.5},
    ),
    "of one that is overlaid the base": (
        """
  - {name: over, match: "a.#", definition: {alert: {depth: 7}, on: {expired: {alert: {depth: 1}}}}}
  - {name: only, match: "b.#", definition: {on: {expired: {alert: {depth: 1}}}}}
""",
        {("over", "depth"): 7.0},
    ),
    "what a policy inherits from one that covers it": (
        """
  - {name: all, match: "#", definition: {alert: {rate: 5}}}
  - {name: orders, match: "orders.#", definition: {max-redrives: 1}}
  - {name: own, match: "own.#", definition: {alert: {rate: 1}}}
""",
        {("all", "rate"): 5.0, ("orders", "rate"): 5.0, ("own", "rate"): 1.0},
    ),
    "nothing where the chain is cut, or covers some queues only": (
        """
  - {name: all, match: "#", definition: {alert: {rate: 5}}}
  - {name: cut, match: "cut.#", inherit: false, definition: {max-redrives: 1}}
""",
        {("all", "rate"): 5.0},
    ),
    "who is asked first wins": (
        """
  - {name: all, match: "#", priority: 9, definition: {alert: {rate: 5}}}
  - {name: own, match: "own.#", definition: {alert: {rate: 1}}}
""",
        {("all", "rate"): 5.0, ("own", "rate"): 5.0},
    ),
    "no alert, no threshold": ("\n  - {name: a, match: '#'}\n", {}),
}


@pytest.mark.parametrize(("policies", "said"), CASES.values(), ids=CASES)
def test_thresholds_are_told_by_policy_and_kind(
    policies: str, said: Mapping[tuple[str, str], float], tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies:{policies}", encoding="utf-8")
    assert thresholds(load_policies(tmp_path).policies) == said
