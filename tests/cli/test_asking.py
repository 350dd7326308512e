"""Commands that ask a router: what is said where there is none, or the address or the token is wrong."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.cli import output
from tests.cli.test_cli import Done, in_a_process
from tests.support.serving import serving

SECRET: Final = "hunter2hunter2hunter2"
COMMAND: Final = ("letters", "list")  # all commands share the client


def refused(done: Done) -> str:
    """What was said, in a line; the exit code is 2 and no secret is in it."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert SECRET not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9", "is the router running"),
        ("http://[::1", "DLX_ROUTER_API_URL"),
        ("http://127.0.0.1:port", "DLX_ROUTER_API_URL"),
        ("127.0.0.1:9719", "DLX_ROUTER_API_URL"),
        ("gopher://127.0.0.1", "DLX_ROUTER_API_URL"),
    ],
)
@pytest.mark.usefixtures("newest")
def test_a_wrong_address_is_told(url: str, said: str) -> None:
    assert said in refused(in_a_process(*COMMAND, API_URL=url))


@pytest.mark.parametrize("token", [f"{SECRET}\nmore", f"{SECRET}\r", f"{SECRET}é"])
def test_what_cannot_be_a_token_is_told_and_not_shown(token: str) -> None:
    assert "DLX_ROUTER_API_TOKEN" in refused(in_a_process(*COMMAND, API_URL="http://127.0.0.1:9", API_TOKEN=token))


def test_a_token_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    for name, why in (("token", "not UTF-8"), ("nowhere", "No such file")):
        message = refused(in_a_process(*COMMAND, API_TOKEN_FILE=str(tmp_path / name)))
        assert ("DLX_ROUTER_API_TOKEN_FILE" in message, why in message) == (True, True)


class _Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def somebody_else() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Web)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_another_program_at_the_address_is_told(somebody_else: str) -> None:
    assert "no router's API" in refused(in_a_process(*COMMAND, API_URL=somebody_else))


def test_nobody_guesses_a_vhost() -> None:
    message = refused(in_a_process("redrive", "list", VHOSTS="a,b", API_URL="http://127.0.0.1:9"))
    assert "a, b; say --vhost" in message


def test_a_support_bundle_is_made_whatever_the_address_is(tmp_path: Path) -> None:
    done = in_a_process(
        "support-bundle", "--to", str(tmp_path / "b.zip"), API_URL="http://[::1", AMQP_URL="amqp://u:p@127.0.0.1:1/"
    )
    assert (done.returncode, (tmp_path / "b.zip").exists()) == (0, True), done


def test_what_others_wrote_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("queue", "error"), [("q\x1b]0;mine\x07", "two\nlines\x9b31m")])
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split() == [r"q\x1b]0;mine\x07", "two;", r"lines\x9b31m"]


class _Refuses(BaseHTTPRequestHandler):
    """Keeps what it is asked, and refuses it."""

    server: "Refusing"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append((self.path, json.loads(body or b"null"), self.headers.get("content-type")))
        self.send_response(422)
        self.end_headers()
        self.wfile.write(b'{"error": "the request cannot be understood", "problems": []}')

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *args: object) -> None:
        pass


class Refusing(ThreadingHTTPServer):
    """A router that takes nothing. `asked`: address, body and its type of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refuses)
        self.asked: list[tuple[str, Any, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    with serving(Refusing()) as server:
        yield server


ODD: Final = "DLQ.\udc80"  # as Python has a name that a shell gives with the byte 80
NAMED: Final[list[tuple[tuple[str, ...], str, dict[str, Any]]]] = [
    (("letters", "list", "--queue", ODD), r"queue=DLQ.%5Cudc80", {}),
    (("letters", "list", "--state", ODD, "--state", "dead"), r"state=DLQ.%5Cudc80&state=dead", {}),
    (("letters", "show", ODD), "/letters/DLQ.%80?", {}),
    (("groups", "show", ODD), "/groups/DLQ.%80", {}),
    (("redrive", "show", ODD, "--vhost", "/"), "/tasks/DLQ.%80?", {}),
    (("redrive", "start", ODD, "--yes", "--vhost", "é"), "vhost=%C3%A9", {"queue": ODD, "vhost": "é"}),
    (("letters", "export", "--from", ODD), "/tasks", {"queue": ODD, "kind": "export"}),
]


@pytest.mark.parametrize(("words", "address", "body"), NAMED, ids=lambda value: str(value)[:40])
def test_a_name_with_bytes_that_are_no_text_reaches_the_router(
    words: tuple[str, ...], address: str, body: dict[str, Any], refusing: Refusing
) -> None:
    """It was "a fault of dlx-router"."""
    assert "cannot be understood" in refused(in_a_process(*words, API_URL=refusing.url))
    ((asked, document, kind),) = refusing.asked
    assert address in asked
    assert kind == ("application/json" if body else None)
    assert {name: document[name] for name in body} == body
