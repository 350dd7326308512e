"""The line budget, on trees of a few lines."""

from pathlib import Path

import pytest

from tools import budget
from tools.budget import Size


def _tree(root: Path) -> Path:
    for name, lines in {
        "dlx_router/a/x.py": 3,
        "dlx_router/a/b/y.py": 2,
        "dlx_router/z.py": 1,
        str(Path("tests", "t.py")): 4,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("pass\n" * lines, encoding="utf-8")
    return root


def test_packages_are_measured_with_the_modules_below_them(tmp_path: Path) -> None:
    assert budget.measure(_tree(tmp_path)) == {
        "a": Size(5, 2), "sum": Size(6, 3), "tests/": Size(4, 1), "tools/": Size(0, 0)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("size", "limit", "is_over"),
    [
        (Size(5, 2), Size(5, 2), False),
        (Size(6, 2), Size(5, 2), True),
        (Size(5, 3), Size(5, 2), True),
        (Size(4, 1), Size(5, 2), False),
    ],
)
def test_more_lines_or_modules_than_the_budget_are_an_excess(size: Size, limit: Size, *, is_over: bool) -> None:
    assert bool(budget.excesses({"a": size}, {"a": limit})) is is_over


def test_a_package_without_a_row_has_no_budget() -> None:
    assert budget.excesses({"new": Size(1, 1)}, {}) == ["new: 1 lines in 1 modules, budget 0 in 0"]


def test_lowering_never_raises_a_number_and_drops_removed_packages() -> None:
    before = {"a": Size(5, 9), "gone": Size(7, 7)}
    assert budget.lowered({"a": Size(6, 2)}, before) == {"a": Size(5, 2)}


def test_the_table_is_read_as_it_is_written() -> None:
    sizes = {"a": Size(5, 2), "tests/": Size(4, 1)}
    assert budget.read(budget.write(sizes)) == sizes
