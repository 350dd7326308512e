"""`redrive list`: all pages of the list, and what a task means where the list has its first ids only."""

from typing import Any

import pytest

from dlx_router.cli.api import Api
from dlx_router.cli.redrive import which


class Paged(Api):
    """Three pages of a task each."""

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        following = {None: "2.b", "2.b": "1.a"}.get(query["cursor"])
        return {"tasks": [{"id": query["cursor"]}], "next": following}


def test_a_list_has_the_items_of_all_pages() -> None:
    tasks = Paged("http://127.0.0.1:9").pages("/tasks", "tasks", "cursor")
    assert [task["id"] for task in tasks] == [None, "2.b", "1.a"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"ids": ["a", "b"]}, "id a, b"),
        ({"ids": ["a", "b", "c", "d", "e"]}, "id a, b, c and 2 more"),
        ({"ids": ["a", "b"], "id_count": 2}, "id a, b"),
        ({"ids": ["a", "b", "c"], "id_count": 1000}, "id a, b, c and 997 more"),
        ({"ids": [], "id_count": 0}, ""),
    ],
)
def test_how_many_ids_a_task_means_is_told_of_a_list_too(spec: dict[str, Any], text: str) -> None:
    assert which(spec) == text
