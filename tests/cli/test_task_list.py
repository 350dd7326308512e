"""`redrive list`: all pages of the list, and what a task means where the list has its first ids only."""

import json
from typing import Any

import pytest

from dlx_router.cli import redrive
from dlx_router.cli.redrive import which
from tests.cli.recorded import listed, task


class Paged:
    """The tasks of a vhost, a few in an answer."""

    PAGES = ("", "2.b", "1.a")

    def ask(self, method: str, path: str = "", **query: str) -> Any:
        assert (method, path) == ("GET", "")
        at = self.PAGES.index(query.get("cursor", ""))
        following = self.PAGES[at + 1] if at + 1 < len(self.PAGES) else None
        return {"tasks": [listed(task(id=f"{at}"))], "next": following}


class OfBefore:
    """A router that has no pages, and all of each task."""

    def ask(self, _method: str, _path: str = "", **_query: str) -> Any:
        return {"tasks": [task(id="0")]}


@pytest.mark.parametrize(("api", "count"), [(Paged(), 3), (OfBefore(), 1)])
def test_a_list_has_the_tasks_of_all_pages(api: Any, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert redrive.every(api, as_json=True) == 0
    assert [shown["id"] for shown in json.loads(capsys.readouterr().out)] == [f"{at}" for at in range(count)]


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
