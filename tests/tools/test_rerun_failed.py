"""What failed is named again without the group that workers append."""

import pytest

from tools.rerun_failed import plain


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("a.py::test_b@", "a.py::test_b"),
        ("a.py::test_b[x@y]@4.3:a.py", "a.py::test_b[x@y]"),
        ("a.py::test_b[c[d]]", "a.py::test_b[c[d]]"),
    ],
)
def test_a_name_loses_its_group_only(told: str, name: str) -> None:
    assert plain(told) == name
