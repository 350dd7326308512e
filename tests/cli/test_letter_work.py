"""`letters work` with several workers: what ends one of them ends the command."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dlx_router.cli.api import Api
from dlx_router.cli.letter_work import Orders, run
from tests.support.serving import serving

ENOUGH = 1000  # questions of a worker that nobody stops
LETTER = {
    "id": "4f",
    "failed_queue": "q",
    "reason": "rejected",
    "receives": 1,
    "until_ms": 0,
    "handle": "h",
    "body": "",
}


class Routers(ThreadingHTTPServer):
    """Answers by the first part of the path what `answers` says; `idle` has no letter, until it was asked enough."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.may_fail = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Routers

    def do_POST(self) -> None:
        router = self.path.split("/")[1]
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked[router] += 1
        status, document = self._answer(router)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def _answer(self, router: str) -> tuple[int, Any]:
        if router == "idle":
            self.server.may_fail.set()
            is_enough = self.server.asked[router] > ENOUGH
            return (404, {"error": "nobody stopped it"}) if is_enough else (200, {"letters": []})
        self.server.may_fail.wait(10)  # until the other worker has begun to follow
        return self.server.answers[router]

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def routers() -> Iterator[Routers]:
    with serving(Routers()) as server:
        yield server


def work(routers: Routers, *whose: str, program: str = "true") -> int:
    """A worker for each of these routers; all follow."""
    number = count()
    asked = {"vhost": "/", "visibility": "5s"}
    orders = Orders(program, len(whose), 0, follow=True)
    return run(lambda: Api(f"{routers.url}/{whose[next(number)]}"), "q", asked, orders)


@pytest.mark.parametrize("whose", [("idle", "refuses"), ("refuses", "idle")])
def test_a_worker_that_is_refused_ends_the_others_whichever_it_is(
    routers: Routers, whose: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the first was waited for: the others failed, and nobody heard of it as long as it followed."""
    routers.answers["refuses"] = 404, {"error": "queue q does not exist"}
    assert work(routers, *whose) == 2
    assert "queue q does not exist" in capsys.readouterr().err
    assert routers.asked["idle"] <= ENOUGH, "the other was stopped, and did not end by itself"


@pytest.mark.parametrize("whose", [("idle", "gives"), ("gives", "idle")])
def test_a_program_that_cannot_be_run_ends_all_workers(
    routers: Routers, whose: tuple[str, str], tmp_path: Path
) -> None:
    """What was no refusal of the router's left the others at work: the command did not end."""
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    program.chmod(0o755)
    routers.answers["gives"] = 200, {"letters": [LETTER]}
    with pytest.raises(FileNotFoundError):
        work(routers, *whose, program=str(program))
    assert routers.asked["idle"] <= ENOUGH, "the other was stopped, and did not end by itself"
