"""`letters work` and the client: programs that receive letters and say what becomes of them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dlx_router.client.worker import LeaseEnded, WorkerError, receive
from tests.leases.conftest import Bench
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.command import run_command
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

PROGRAM = """
import os, sys
body = sys.stdin.buffer.read().decode()
with open(sys.argv[1], "a") as seen:
    print(body, os.environ["DLX_LETTER_RECEIVES"], os.environ.get("DLX_ROUTER_API_TOKEN"), file=seen)
sys.exit(int(body.split()[0]))
"""


def work(bench: Bench, queue: str, program: Path, seen: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} {program} {seen}"
    argv: Sequence[str] = ["letters", "work", queue, "--vhost", bench.vhost.name, "--exec", command, *options]
    env = {
        **os.environ,
        "DLX_ROUTER_API_URL": f"http://127.0.0.1:{bench.router.port}",
        "DLX_ROUTER_API_TOKEN": "x" * 20,
    }
    return run_command([*argv], env, within_s=60)


@pytest.mark.slow
def test_the_exit_code_says_what_becomes_of_a_letter(bench: Bench, tmp_path: Path) -> None:
    program, seen = tmp_path / "program.py", tmp_path / "seen"
    program.write_text(PROGRAM, encoding="utf-8")
    queue = bench.failed("exec.a", ["0 fine", "65 odd", "3 fails", "0 fine too"])
    ended = work(bench, queue, program, seen, "--visibility", "5s")
    assert ended.returncode == 1, ended.stderr
    assert "2 done" in ended.stderr
    assert "1 parked" in ended.stderr
    assert "1 failed (exit 3)" in ended.stderr
    assert seen.read_text().splitlines()[:2] == ["0 fine 1 None", "65 odd 1 None"]
    assert record(bench.amqp.take("dlx-router.parking"))["state"] == "parked"
    eventually(lambda: bench.amqp.depth(queue) == 1, 20)
    (again,) = bench.receive(queue)
    assert again["receives"] == 2
    assert bench.ended(again, "done") == "done"
    done = work(bench, queue, program, seen)
    assert (done.returncode, done.stderr) == (0, "No letters.\n")


@pytest.mark.slow
def test_a_limit_a_wrong_program_and_a_wrong_queue(bench: Bench, tmp_path: Path) -> None:
    program, seen = tmp_path / "program.py", tmp_path / "seen"
    program.write_text(PROGRAM, encoding="utf-8")
    queue = bench.failed("limit.a", ["0"] * 5)
    limited = work(bench, queue, program, seen, "--limit", "3", "--workers", "2")
    assert (limited.returncode, limited.stderr) == (0, "3 done\n")
    assert bench.amqp.depth(queue) == 2
    nobody = work(bench, "DLQ.nobody", program, seen)
    assert (nobody.returncode, "does not exist" in nobody.stderr) == (2, True)
    short = work(bench, queue, program, seen, "--visibility", "1s")
    assert (short.returncode, "5s at least" in short.stderr) == (2, True)
    nothing = work(bench, queue, program, seen, "--exec", "no-such-program")
    assert (nothing.returncode, "no such program" in nothing.stderr) == (2, True)


REDACTS = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1, journal: {redact: [/card]}}
"""


def test_a_letter_whose_body_is_redacted_is_not_deleted_because_a_program_saw_nothing_of_it(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    bench = Bench(vhost, amqp, start_router(REDACTS))
    queue = bench.failed("hidden.a", ["card=4711", '{"card": 4711}', '{"cart": 1}'])
    ended = work(bench, queue, tmp_path, tmp_path, "--exec", "cat", "--visibility", "5s")
    assert (ended.returncode, ended.stdout) == (1, '{"cart": 1}'), ended.stderr
    assert "1 done" in ended.stderr
    assert "2 not shown to the program (body redacted; see --redacted-bodies)" in ended.stderr
    eventually(lambda: bench.amqp.depth(queue) == 2, 20)
    command = "sh -c 'cat; echo =$DLX_LETTER_REDACTED'"
    meant = work(bench, queue, tmp_path, tmp_path, "--exec", command, "--redacted-bodies")
    assert (meant.returncode, meant.stderr) == (0, "2 done\n")
    assert sorted(meant.stdout.split()) == ["=1", '{"card":"***"}=1']
    assert bench.receive(queue) == []


async def test_a_loop_over_letters(bench: Bench) -> None:
    queue = bench.failed("loop.a", ["good", "bad", "back", "rest"])
    url = f"http://127.0.0.1:{bench.router.port}"
    seen: list[str] = []

    async def handled() -> None:
        async for letter in receive(queue, url=url, vhost=bench.vhost.name, batch=10, until_empty=True):
            body = letter.body.decode()
            seen.append(body)
            if body == "rest":
                break
            async with letter:
                if body == "back":
                    await letter.redrive()
                if body == "bad":
                    raise RuntimeError(body)

    with pytest.raises(RuntimeError):
        await handled()
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 3)  # what nobody had looked at too
    bench.amqp.take(queue)
    await handled()
    assert seen == ["good", "bad", "back", "rest"]
    assert bench.amqp.take("loop.a").body == b"back"
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 1)


async def test_a_letter_that_waited_for_its_turn_is_extended_as_its_block_begins(bench: Bench) -> None:
    queue = bench.failed("turn.a", ["first", "second"])
    url = f"http://127.0.0.1:{bench.router.port}"
    letters = receive(queue, url=url, vhost=bench.vhost.name, visibility=3.0, batch=2)
    async with await anext(letters):
        await asyncio.sleep(2.2)  # the second waits for its turn
    async with await anext(letters):
        await asyncio.to_thread(consistently, lambda: bench.amqp.depth(queue) == 0, 1.5)
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 0)
    assert bench.receive(queue) == [], "both are done"


async def test_a_letter_is_kept_while_it_is_worked_at_and_late_is_late(bench: Bench) -> None:
    queue = bench.failed("keep.a", ["slow", "late"])
    url = f"http://127.0.0.1:{bench.router.port}"
    letters = receive(queue, url=url, vhost=bench.vhost.name, visibility=1.5, batch=2)
    slow = await anext(letters)
    async with slow:
        await asyncio.to_thread(consistently, lambda: bench.amqp.depth(queue) == 0, 1)
        await asyncio.sleep(2)  # as long as somebody works at it, which is longer than its lease
    late = await anext(letters)
    with pytest.raises(LeaseEnded) as ended:
        await late.done()
    assert ended.value.ended == "expired"
    (expired,) = [
        letter async for letter in receive(queue, url=url, vhost=bench.vhost.name, until_empty=True, visibility=0.5)
    ]
    await asyncio.sleep(1)  # its lease is over
    entered = False
    with pytest.raises(LeaseEnded):
        async with expired:
            entered = True
    assert not entered, "somebody else may have it"
    with pytest.raises(WorkerError, match="does not exist"):
        await anext(receive("DLQ.nobody", url=url, vhost=bench.vhost.name))
    with pytest.raises(ValueError, match="write http"):
        await anext(receive(queue, url="localhost"))
