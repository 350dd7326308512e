"""The router of the release before and that of this tree replace each other while letters wait in every rung."""

from pathlib import Path

import pytest

from dlx_router.core.names import RUNGS
from tests.support.vhost import Vhost
from tools.release.history import release_before
from tools.release.upgrade import LETTERS, Upgrade

IS_CHECKOUT = (Path(__file__).parents[2] / ".git").exists()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its source."""
    if not IS_CHECKOUT:
        pytest.skip("the release before is in the history, and this is no git checkout")
    return release_before(tmp_path_factory.mktemp("before"))


@pytest.mark.slow
@pytest.mark.parametrize("goes_back", [False, True], ids=["from-the-release-before", "back-to-it"])
def test_letters_in_every_rung_outlive_the_change_of_the_router(
    *, goes_back: bool, vhost: Vhost, tmp_path: Path, old: Path
) -> None:
    done = Upgrade(vhost.amqp_url, vhost.management_url, tmp_path, old, goes_back).run()
    assert done.wrong == [], str(done)
    assert len(done.failed_at) == LETTERS * len(RUNGS)
    assert sum(map(bool, done.held.values())) >= 40, "rungs with letters in them when the second router began"
