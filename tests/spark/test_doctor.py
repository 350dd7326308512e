"""What `pipeline doctor` says of an archive's signatures."""

from pathlib import Path

import pytest

from dlx_router.spark.doctor import Check, State, _signed

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", ["bad", "none", "archive"])
def test_an_archive_that_cannot_be_read_fails_whatever_its_name(tmp_path: Path, name: str) -> None:
    manifests = tmp_path / name / "_manifest"
    manifests.mkdir(parents=True)
    (manifests / "0000000001.json").write_text("nothing that was committed", encoding="utf-8")
    check = _signed(tmp_path / name)
    assert (check.state, name in check.said) == (State.FAIL, True)


def test_an_archive_without_events_is_no_trouble(tmp_path: Path) -> None:
    assert _signed(tmp_path / "bad") == Check("signed", State.OK, "no events yet")
