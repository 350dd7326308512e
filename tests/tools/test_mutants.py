"""Every mutant still fits the source, and names a test that exists. `make mutants` runs them."""

import re

import pytest

from tools.mutants.run import ROOT
from tools.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_its_place_and_its_test(mutant: Mutant) -> None:
    source = (ROOT / "dlx_router" / mutant.file).read_text(encoding="utf-8")
    assert mutant.applied(source) != source
    file, _, test = mutant.test.partition("::")
    assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
