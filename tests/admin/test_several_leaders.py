"""Several routers, each of which leads some vhosts: an index is asked only about those that its router leads."""

from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from tests.admin.replicas import OLGA, Network, Replica
from tests.core.core_samples import NOW

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
