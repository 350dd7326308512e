"""What a letter costs among many policies: nothing more, since each queue is resolved once."""

import time
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.core.core_samples import letter

ROUNDS: Final = 30
LETTERS: Final = 5_000


def decider(folder: Path, policies: int) -> Decider:
    lines = ["version: 1", "policies:", "  - {name: work, queue: work}"]
    kinds = ("queue: q{}", "match: 'm{}.#'", "pattern: '^p{}[.]'")
    lines += [f"  - {{name: p{n}, {kinds[n % 3].format(n)}}}" for n in range(policies - 1)]
    folder.mkdir()
    (folder / "p.yaml").write_text("\n".join(lines), encoding="utf-8")
    journal = Journal(mode=Mode.OFF, name="j", vhost="/", router_id="r", readiness=Readiness())
    return Decider(InForce.of(Rules(load_policies(folder).policies, Names(), 30_000), "/"), Metrics(), journal)


def seconds(resolver: Decider) -> float:
    died = letter()
    began = time.perf_counter()
    for _ in range(LETTERS):
        resolver.in_force.resolve(died)
    return time.perf_counter() - began


@pytest.mark.measure
def test_a_letter_costs_the_same_among_one_and_a_thousand_policies(tmp_path: Path) -> None:
    few, many = decider(tmp_path / "few", 1), decider(tmp_path / "many", 1000)
    rounds = [(seconds(few), seconds(many)) for _ in range(ROUNDS)]
    ratio = median(many for _, many in rounds) / median(few for few, _ in rounds)
    print(f"1,000 policies to 1: {ratio:.2f}")  # noqa: T201 - a measurement
    assert ratio < 1.2


def test_a_queue_is_resolved_once_however_many_letters_it_has(tmp_path: Path) -> None:
    resolver = decider(tmp_path / "many", 300)
    died = letter()
    assert resolver.in_force.resolve(died) is resolver.in_force.resolve(died)
