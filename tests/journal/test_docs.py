"""docs/journal.md says what the code does: its tables are the code's, and its example runs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from dlx_router.core.letter import Declared
from dlx_router.journal import fields
from dlx_router.journal.audit import audit
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import fragments, gap
from dlx_router.journal.privacy import Rule, disclosed
from dlx_router.wire import table
from tests.core.core_samples import death, letter
from tests.journal.journal_samples import RULING, event, props
from tests.support.client import Client
from tests.support.vhost import Vhost

PAGE: Final = (Path(__file__).parents[2] / "docs/journal.md").read_text(encoding="utf-8")


def part(name: str) -> str:
    section = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert section, f"docs/journal.md lacks <!-- {name} --> … <!-- end -->"
    return section[1].strip()


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    assert part("fields") == fields.table()
    assert part("kinds") == fields.kinds()
    assert part("row") == fields.row()


def test_every_field_is_one_that_some_event_has_and_every_event_has_no_other() -> None:
    rule = Rule(body="all", headers=("a",), pointers=("/a",), redact=("/b",))
    own = disclosed(rule, "parked", headers=table.long_(b"a", 1), body=b'{"a":1,"b":2}', error={"type": "x"})
    died = letter(
        state="dead",
        known_before=True,
        rejected_since=True,
        parent="cd" * 16,
        fresh=(death(times=3),),
        first=None,
        declared=Declared(never=True),
        cause="loop",
        since_ms=1,
        serial=1,
        possible_copy=True,
    )
    ruling = RULING._replace(
        cause="loop", detail="text", rung_ms=100, refused="dlx", breaker="open", redrive_id="r", observed=True
    )
    full = event(died, ruling, extra=own, due_ms=1, draw=0.5, props=props(type=b"x"))
    missing, leased = {"events", "from_ms", "to_ms"}, {"lease"}  # tests/leases/test_events.py
    audited = {*json.loads(audit("r", "/", actor="ann", action="group.set", details={}, ts_ms=1))}
    assert {*full} | missing | audited | leased == {field.name for field in fields.FIELDS}
    assert missing <= {*map(str, re.findall(r'"(\w+)":', gap("r", "/", events=1, from_ms=1, to_ms=2).decode()))}


def test_the_example_of_the_page_reads_a_stream(amqp: Client, vhost: Vhost) -> None:
    amqp.queue("dlx-router.journal", "stream")
    gap_line = gap("router-a", "/", events=7, from_ms=1, to_ms=2)
    amqp.publish(gap_line, key="dlx-router.journal", headers={"v": 1})
    how: dict[str, Any] = {"headers": {"v": 2}, "content_encoding": "zstd"}
    batch = Batch(2)
    batch.add(fragments(letter(id="ab" * 16), RULING).entry("ab" * 16, 5, first_ms=1, last_ms=2, crc32=3, size=4))
    batch.close()
    amqp.publish(batch.body, key="dlx-router.journal", **how)
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code
    program = f"url = {vhost.amqp_url!r}\n{code[1]}"
    with subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert running.stdout.readline() == "0 0 gap None None\n"
        assert running.stdout.readline() == f"1 0 dead_lettered work {'ab' * 16}\n"
        running.kill()
