"""Each router answers from its own index, whichever leads."""

from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.admin.api import comments
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from dlx_router.journal.batch import Batch, settled
from tests.admin.replicas import OLGA, Network, Replica
from tests.core.core_samples import NOW
from tests.journal.journal_samples import told

SAID: Final = "group.set"


def happened(vhost: str, number: int) -> bytes:
    """What somebody did there."""
    line = audit("r", vhost, actor="olga", action=SAID, details={"number": number}, ts_ms=NOW + number)
    return line.replace(line.split(b'"event_id":"')[1].split(b'"')[0], f"{vhost.strip('/')}-{number}".encode())


def indexed(folder: Path, name: str, **bodies: bytes) -> None:
    """What the index of this router has read: of vhost / (`root`) and of vhost b."""
    store = Store(open_writer(folder / name, max_bytes=1 << 30))
    for vhost, body in bodies.items():
        store.apply({"root": "/"}.get(vhost, vhost), [Message(0, body)])
    store.close()


class Journal:
    """It has what is written down at once."""

    is_on = is_working = True
    mode = "best-effort"

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def record(self, line: bytes) -> Batch:
        self.lines.append(line)
        batch = settled()
        batch.confirmed = True
        return batch


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Replica, Replica]:
    """Neither leads, and the indexes of both have the same letters, each in an order of its own."""
    monkeypatch.setattr(comments, "SEEN_S", 0.0)
    first, second = (Replica(Network(), tmp_path, name, ("/", "b")) for name in ("first", "second"))
    for replica in (first, second):
        for vhost in ("/", "b"):
            replica.vhosts[vhost].journal = Journal()
    here, there = told(1) + told(3) + happened("/", 2), told(2) + told(3) + told(4) + happened("b", 3)
    indexed(tmp_path, "first", root=here, b=there)
    indexed(tmp_path, "second", b=there, root=here)
    return first, second


async def test_audits_and_signatures_are_of_all_vhosts(pair: tuple[Replica, Replica]) -> None:
    for replica in pair:
        page = (await replica.ask("GET", "/audits", params={"limit": 1}))[1]
        rest = (await replica.ask("GET", "/audits", params={"limit": 2, "cursor": page["next"]}))[1]
        assert [row["details"]["number"] for row in (*page["audits"], *rest["audits"])] == [3, 2]
        assert page["as_of"] == {"/": None, "b": None}, "no index is read here"
        signed = (await replica.ask("GET", "/queues"))[1]["signatures"]
        assert {vhost: sum(counts.values()) for vhost, counts in signed.items()} == {"/": 3, "b": 4}


async def test_a_page_goes_on_at_another_replica(pair: tuple[Replica, Replica]) -> None:
    """Numbers of letters are those of a file: behind a load balancer pages repeated letters and left some out."""
    seen, cursor = list[tuple[str, str]](), dict[str, str]()
    for number in range(3):
        status, page = await pair[number % 2].ask("GET", "/letters", params={"vhost": "b", "limit": 1, **cursor})
        assert status == 200, page
        seen += [(letter["vhost"], letter["id"]) for letter in page["letters"]]
        cursor = {"cursor": page["next"]}
    assert seen == [("b", f"{number:032x}") for number in (4, 3, 2)]
    for unknown, expected in ((f"1.a.{'f' * 32}", 409), ("1", 200)):
        assert (await pair[0].ask("GET", "/letters", params={"cursor": unknown}))[0] == expected


def notes(replica: Replica) -> dict[str, int]:
    return {vhost: len(attendant.journal.lines) for vhost, attendant in replica.vhosts.items()}


def of_letter(number: int) -> str:
    return f"/letters/{number:032x}/comments"


async def test_a_note_belongs_to_the_copy_that_is_named_and_to_none_by_chance(pair: tuple[Replica, Replica]) -> None:
    """Any router takes it, into its journal: every index reads it there."""
    asked, note = pair[1], {"text": "x"}
    for query in ({}, {"queue": "orders"}):
        status, answer = await asked.ask("POST", of_letter(3), json=note, params=query)
        assert status == 409, answer
        assert "'orders' of vhost '/'" in answer["error"]
        assert answer["error"].endswith("say which one by queue and vhost")
    assert notes(asked) == {"/": 0, "b": 0}
    for vhost, expected in (("b", {"/": 0, "b": 1}), ("/", {"/": 1, "b": 1})):
        status, answer = await asked.ask("POST", of_letter(3), json=note, params={"queue": "orders", "vhost": vhost})
        assert (status, notes(asked)) == (201, expected), answer
    assert (await asked.ask("POST", of_letter(1), json=note))[0] == 201
    assert (await asked.ask("POST", of_letter(5), json=note))[0] == 404
    assert (await asked.ask("POST", of_letter(1), json=note, params={"vhost": "b"}))[0] == 404


ODD: Final = ["\u0661", "\U00010d41", "\u00b2", "1\u0661"]


@pytest.mark.parametrize("digits", ODD)
@pytest.mark.parametrize(("path", "behind"), [("/letters", ""), ("/audits", ".a"), ("/tasks", ".a")])
async def test_a_cursor_in_digits_of_another_script_is_refused(
    tmp_path: Path, path: str, behind: str, digits: str
) -> None:
    r"""\d of pydantic means those of Unicode, of which Python's int lacks the newest: such a one was answered 500."""
    replica = Replica(Network(), tmp_path, "only", ("/",))
    replica.lead("/")
    status, answer = await replica.ask("GET", path, OLGA, params={"cursor": digits + behind})
    assert (status, "cursor" in answer["problems"][0]) == (422, True)


async def test_a_content_length_that_only_looks_like_a_number_is_no_fault(tmp_path: Path) -> None:
    replica = Replica(Network(), tmp_path, "only", ("/",))
    headers: dict[str, Any] = {"content-length": b"\xb2"}
    status, _ = await replica.ask("POST", "/tasks", headers=headers, content=b"{}")
    assert status < 500
