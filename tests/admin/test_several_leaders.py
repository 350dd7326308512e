"""Several routers, each of which leads some vhosts: an index is asked only about those that its router leads."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.admin.api import comments, forwarding
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


@pytest.fixture
def several(tmp_path: Path) -> tuple[Replica, Replica]:
    """The first one leads /, the second one b, which the first one led before: it knows what happened there by then."""
    network = Network()
    first, second = (Replica(network, tmp_path, name, ("/", "b")) for name in ("first", "second"))
    first.lead("/", second)
    second.lead("b", first)
    old = happened("b", 1)
    indexed(tmp_path, "first", root=happened("/", 2), b=old)
    indexed(tmp_path, "second", b=old + happened("b", 3))
    return first, second


async def test_an_audit_is_told_once_by_who_leads(several: tuple[Replica, Replica]) -> None:
    """The index of a router that led before has the same events: they were told twice, and stale ones as true."""
    for replica in several:
        status, answer = await replica.ask("GET", "/audits")
        assert (status, answer["missing"]) == (200, {})
        assert [(row["vhost"], row["details"]["number"]) for row in answer["audits"]] == [("b", 3), ("/", 2), ("b", 1)]
        page = (await replica.ask("GET", "/audits", params={"limit": 2}))[1]
        rest = (await replica.ask("GET", "/audits", params={"limit": 2, "cursor": page["next"]}))[1]
        assert [row["details"]["number"] for row in (*page["audits"], *rest["audits"])] == [3, 2, 1]


async def test_signatures_are_counted_by_who_leads(several: tuple[Replica, Replica]) -> None:
    counts = [(await replica.ask("GET", "/queues"))[1]["signatures"] for replica in several]
    assert counts[0] == counts[1]
    assert {vhost: sum(signed.values()) for vhost, signed in counts[0].items()} == {"/": 1, "b": 2}


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


Noting = tuple[tuple[Replica, Replica], dict[str, Journal]]


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noting:
    """Letter 1 failed in vhost /, letter 2 in b, letter 3 in both; the first router leads /, the second one b."""
    monkeypatch.setattr(comments, "SEEN_S", 0.0)
    monkeypatch.setattr(forwarding, "WAIT_S", 0.3)
    network = Network()
    first, second = (Replica(network, tmp_path, name, ("/", "b")) for name in ("first", "second"))
    first.lead("/", second)
    second.lead("b", first)
    first.vhosts["/"].journal, second.vhosts["b"].journal = Journal(), Journal()
    indexed(tmp_path, "first", root=told(1) + told(3))
    indexed(tmp_path, "second", b=told(2) + told(3))
    return (first, second), {"/": first.vhosts["/"].journal, "b": second.vhosts["b"].journal}


def notes(journals: dict[str, Journal]) -> dict[str, int]:
    return {vhost: len(journal.lines) for vhost, journal in journals.items()}


def of_letter(number: int) -> str:
    return f"/letters/{number:032x}/comments"


@pytest.mark.parametrize("at", [0, 1])
async def test_a_note_belongs_to_the_copy_that_is_named_and_to_none_by_chance(noting: Noting, at: int) -> None:
    """Whichever router was asked first took it, because each saw its own copy only."""
    replicas, journals = noting
    asked, note = replicas[at], {"text": "x"}
    for query in ({}, {"queue": "orders"}):
        status, answer = await asked.ask("POST", of_letter(3), json=note, params=query)
        assert status == 409, answer
        assert {"'orders' of vhost '/'", "'orders' of vhost 'b'"} == {
            *re.findall("'orders' of vhost '.'", answer["error"])
        }
        assert answer["error"].endswith("say which one by queue and vhost")
    assert notes(journals) == {"/": 0, "b": 0}
    for vhost, expected in (("b", {"/": 0, "b": 1}), ("/", {"/": 1, "b": 1})):
        status, answer = await asked.ask("POST", of_letter(3), json=note, params={"queue": "orders", "vhost": vhost})
        assert (status, notes(journals)) == (201, expected), answer


@pytest.mark.parametrize("at", [0, 1])
async def test_a_letter_of_one_vhost_is_noted_on_whoever_is_asked(noting: Noting, at: int) -> None:
    replicas, journals = noting
    assert (await replicas[at].ask("POST", of_letter(1), json={"text": "x"}))[0] == 201
    assert (await replicas[at].ask("POST", of_letter(2), json={"text": "x"}))[0] == 201
    assert notes(journals) == {"/": 1, "b": 1}
    assert (await replicas[at].ask("POST", of_letter(4), json={"text": "x"}))[0] == 404
    assert (await replicas[at].ask("POST", of_letter(1), json={"text": "x"}, params={"vhost": "b"}))[0] == 404


async def test_a_note_waits_until_all_who_may_know_the_letter_answer(noting: Noting) -> None:
    """The router that cannot be asked may know another copy of it."""
    (first, second), journals = noting
    del first.network.apps["second"]
    status, _ = await first.ask("POST", of_letter(3), json={"text": "x"})
    assert (status, notes(journals)) == (503, {"/": 0, "b": 0})
    first.network.apps["second"] = second.app
    assert (await first.ask("POST", of_letter(3), json={"text": "x"}))[0] == 409


async def test_copies_in_vhosts_of_one_router_are_told_apart_by_the_vhost(tmp_path: Path) -> None:
    replica = Replica(Network(), tmp_path, "only", ("/", "b"))
    for vhost in ("/", "b"):
        replica.lead(vhost)
        replica.vhosts[vhost].journal = Journal()
    indexed(tmp_path, "only", root=told(3), b=told(3))
    status, answer = await replica.ask("POST", of_letter(3), json={"text": "x"}, params={"queue": "orders"})
    assert (status, answer["error"].endswith("say which one by queue and vhost")) == (409, True)
    assert (await replica.ask("POST", of_letter(3), json={"text": "x"}, params={"vhost": "b"}))[0] == 201
    assert len(replica.vhosts["b"].journal.lines) == 1


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


@pytest.mark.parametrize("cursor", ["~\u00fc", "~a b"])
async def test_a_cursor_over_several_routers_is_ascii(tmp_path: Path, cursor: str) -> None:
    replica = Replica(Network(), tmp_path, "only", ("/",))
    replica.lead("/")
    assert (await replica.ask("GET", "/letters", params={"cursor": cursor}))[0] == 422


async def test_a_content_length_that_only_looks_like_a_number_is_no_fault(tmp_path: Path) -> None:
    replica = Replica(Network(), tmp_path, "only", ("/",))
    headers: dict[str, Any] = {"content-length": b"\xb2"}
    status, _ = await replica.ask("POST", "/tasks", headers=headers, content=b"{}")
    assert status < 500
