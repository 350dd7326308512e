"""Queues are listed by pages: none that stands all the while is left out, whatever comes and goes meanwhile."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker import management
from dlx_router.broker.management import MOST_MISSED, PAGE, Management, ManagementError, NotThereError, listed
from tests.support.serving import serving

Change = tuple[Sequence[str], Sequence[str]]  # what is deleted and made once an answer has gone out


class Queues:
    """The queues of a vhost, as the management API lists them; each answer is followed by the next change."""

    def __init__(self, names: Iterable[str], changes: Iterable[Change] = ()) -> None:
        self.names, self.changes = {*names}, [*changes]
        self.stayed = {*self.names}
        self.stood = {*self.names}
        self.asked: list[str] = []

    async def get(self, path: str) -> Any:
        """NotThereError for a queue that is not there."""
        self.asked.append(path)
        status, answer = self.answer(path)
        if status == 200:
            return answer
        raise (NotThereError if status == 404 else ManagementError)(f"{status} ({answer['reason']})")

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and document."""
        try:
            return self._answer(path)
        finally:
            self._change()

    def _answer(self, path: str) -> tuple[int, Any]:
        where = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        _queues, _vhost, *name = where.path.removeprefix("/api/").split("/")
        if name:
            queue = unquote(name[0])
            return (200, {"name": queue}) if queue in self.names else (404, {"reason": "Not Found"})
        if "page" not in query:
            return 200, [{"name": queue} for queue in sorted(self.names)]
        fitting = sorted(queue for queue in self.names if re.search(query.get("name", ""), queue))
        page, size = int(query["page"]), int(query["page_size"])
        pages = max(1, -(-len(fitting) // size))
        if page > pages:
            return 400, {"error": "page_out_of_range", "reason": f"Page out of range, page: {page} size: {size}"}
        items = [{"name": queue} for queue in fitting[(page - 1) * size : page * size]]
        return 200, {"page_count": pages, "items": items}

    def _change(self) -> None:
        if self.changes:
            gone, made = self.changes.pop(0)
            self.names = (self.names - {*gone}) | {*made}
            self.stayed -= {*gone}
            self.stood |= {*made}


class Refusing(Queues):
    """Gives no page from this one on."""

    def __init__(self, names: Iterable[str], page: int) -> None:
        super().__init__(names)
        self._page = page

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and document."""
        return (500, {"reason": "tired"}) if f"?page={self._page}&" in path else super().answer(path)


async def names_of(queues: Queues, pattern: str = "") -> list[str]:
    return [queue["name"] async for queue in listed(queues.get, "v", pattern, "name")]


MANY: Final = [f"q{number:04}" for number in range(2 * PAGE)]
LAST: Final = MANY[PAGE]  # the first of the second page


async def test_a_queue_that_is_deleted_between_two_pages_hides_no_other() -> None:
    """`q0500` moved to the first page after that was read: apply removed its policy, attachments left it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = queues.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    queues = Queues(MANY, [(MANY[:1], ["reply"])])
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        management = Management(f"http://u:hunter2@127.0.0.1:{server.server_port}")
        seen = await management.queues("v", ".")
        await management.close()
    assert LAST in seen
    assert {*seen} >= queues.stayed


async def test_where_too_many_came_to_be_asked_one_by_one_that_is_said() -> None:
    made = [f"a{number:04}" for number in range(MOST_MISSED + 1)]
    with pytest.raises(ManagementError, match="501 queues came or moved while they were listed"):
        await names_of(Queues(MANY, [((), ()), ((), made)]))


async def test_a_page_that_is_gone_meanwhile_is_the_end_and_any_other_refusal_is_one() -> None:
    assert {*await names_of(Queues(MANY, [(MANY[3:], ())]))} >= {*MANY[:3]}
    for page in (1, 2):
        with pytest.raises(ManagementError, match="tired"):
            await names_of(Refusing(MANY, page))


NAMES: Final = st.sampled_from([f"{kind}{number}" for kind in ("reply", "work") for number in range(12)])
FEW: Final = st.frozensets(NAMES, max_size=4)


@given(
    st.frozensets(NAMES), st.lists(st.tuples(FEW.map(sorted), FEW.map(sorted))), st.sampled_from(["", "^work", "1$"])
)
def test_what_stands_all_the_while_is_listed_once_and_nothing_that_never_stood(
    names: frozenset[str], changes: list[Change], pattern: str
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(management, "PAGE", 3)
        queues = Queues(names, changes)
        seen = asyncio.run(names_of(queues, pattern))
    assert len(seen) == len({*seen})
    assert {name for name in queues.stayed if re.search(pattern, name)} <= {*seen}
    assert {*seen} <= {name for name in queues.stood if re.search(pattern, name)}
