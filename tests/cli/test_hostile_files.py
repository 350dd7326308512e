"""Wrong files, as people have them: `policy lint` and `policy import` say where, what and what now, and end as promised."""
# ruff: noqa: E501 - a row of a table is read as one line

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dlx_router.cli.main import main
from tests.cli.test_cli import Done

Run = Callable[..., Done]
Make = Callable[[Path], object]

GOOD: Final = "version: 1\npolicies:\n- {name: a, queue: a}\n"
HEAD: Final = "version: 1\npolicies:\n- name: a\n  queue: a\n  definition:\n"  # what follows is in line 6
BOMB: Final = "version: 1\na: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\npolicies: *c\n"
SAID: Final = re.compile(r"(?P<file>[^\n]*?):(?P<line>[0-9]+)(?::[0-9]+)?: (?P<rest>.+)")


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Run:
    """What the command line prints and how it ends."""

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


def text(content: str | bytes) -> Make:
    """The file holds this."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda path: path.write_bytes(data)


def loop(path: Path) -> None:
    """A link to a link to itself."""
    path.symlink_to(path.with_suffix(".other"))
    path.with_suffix(".other").symlink_to(path)


def unreadable(path: Path) -> None:
    """Not even root can read this."""
    path.symlink_to("/proc/self/mem")


# name, how it is made, exit code, line, what, what now
LINTED: Final[list[tuple[str, Make, int, int, str, str]]] = [
    ("unit-of-sizes", text(HEAD + "    max-length-bytes: 5s\n"), 1, 6, "5s", '"10MiB"'),
    ("bad-regex", text("version: 1\npolicies:\n- {name: a, pattern: '(?<=a)b'}\n"), 1, 3, "pattern", "RE2"),
    ("bad-condition", text(HEAD + "    never-retry: ['reason = 1']\n"), 1, 6, "never-retry", "="),
    ("alias-bomb", text(BOMB), 1, 2, "anchor", "repeat the value"),
    ("deep-bomb", text("version: 1\npolicies: " + "[" * 5000), 1, 2, "nested deeper", "20"),
    ("empty", text(""), 1, 1, "version is missing", "write version: 1"),
    ("binary", text(bytes(range(256))), 1, 2, "UTF-8", "save the file as UTF-8"),
    ("nul-bytes", text(b"version: 1\n\0\0\0"), 1, 2, "control characters", "take them out"),
    ("json-by-mistake", text('{"version": 1, "policies": [{"name": "a", "queu": "a"}]}'), 1, 1, "queu", 'did you mean "queue"?'),
    ("windows-line-ends-and-a-typo", text("version: 1\r\npolicies:\r\n- {name: a, queu: a}\r\n"), 1, 3, "queu", 'did you mean "queue"?'),
    ("ten-megabytes", text(GOOD + "# filler\n" * 1_200_000), 1, 1, "1048576", "split it"),
    ("merge-conflict", text("version: 1\n<<<<<<< HEAD\npolicies: []\n=======\n"), 1, 3, "of what begins in line 2", "write key: value"),
    ("terminal-escapes", text('version: 1\npolicies:\n- {name: a, queue: a, "\\e[31mred": 1}\n'), 1, 3, "[31mred", "known"),
    ("link-loop", loop, 2, 1, "cannot be read", "name a path that can"),
    ("unreadable", unreadable, 2, 1, "cannot be read", "name a path that can"),
    ("link-to-nowhere", lambda path: path.symlink_to("nowhere"), 2, 1, "cannot be read", "name a path that can"),
]  # fmt: skip


def lines_about(printed: str, path: Path) -> list[re.Match[str]]:
    """The lines about the file; there is no other one but a summary."""
    lines = [match for match in map(SAID.fullmatch, printed.splitlines()) if match]
    assert {match["file"] for match in lines} == {str(path)}, printed
    assert all(char == "\n" or char.isprintable() for char in printed), repr(printed)
    return lines


@pytest.mark.parametrize("row", LINTED, ids=[row[0] for row in LINTED])
def test_lint_says_where_what_and_what_now(
    row: tuple[str, Make, int, int, str, str], tmp_path: Path, typed: Run
) -> None:
    _, make, code, line, what, now = row
    path = tmp_path / "p.yaml"
    make(path)
    done = typed("policy", "lint", str(tmp_path))
    first = lines_about(done.stdout, path)[0]
    assert (done.returncode, int(first["line"])) == (code, line), done.stdout
    assert what in first["rest"]
    assert now in first["rest"]


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace("\n", "\r\n").encode(), GOOD.encode() + b"# \xc3\xa4\n"]
)
def test_byte_order_marks_line_ends_and_umlauts_are_no_mistake(data: bytes, tmp_path: Path, typed: Run) -> None:
    (tmp_path / "p.yaml").write_bytes(data)
    assert typed("policy", "lint", str(tmp_path)).returncode == 0


DEFINITIONS: Final = '{\n  "policies": [\n    {"name": "a", "pattern": "^a"},\n    %s\n  ]\n}\n'
XML: Final = '<configuration>\n<address-settings>\n<address-setting match="a">\n%s\n</address-setting>\n</address-settings>\n</configuration>\n'
# system, name, how it is made, exit code, line, what, what now
IMPORTED: Final[list[tuple[str, str, Make, int, int, str, str]]] = [
    ("rabbitmq", "empty", text(""), 1, 1, "empty", "export it again"),
    ("rabbitmq", "cut-off", text('{"policies": [\n{"name": "a",\n'), 1, 3, "not JSON", "export it again"),
    ("rabbitmq", "trailing-comma", text('{"policies": [\n{"name": "a",}\n]}'), 1, 2, "not JSON", "export it again"),
    ("rabbitmq", "binary", text(b"{\n\xff"), 1, 2, "UTF-8", "save the file as UTF-8"),
    ("rabbitmq", "another-file", text('{"name": "package"}\n'), 1, 1, "no policies", "export_definitions"),
    ("rabbitmq", "xml", text("<broker/>"), 1, 1, "not JSON", "export it again"),
    ("rabbitmq", "wrong-type", text(DEFINITIONS % '"b"'), 1, 3, "policies[1]: expected an object, found a text", "--from"),
    ("rabbitmq", "policy-of-nothing", text(DEFINITIONS % '{"name": "b", "definition": {"message-ttl": 5}}'), 1, 4, "policy b: pattern is missing", "export it again"),
    ("rabbitmq", "written-twice", text('{"policies": [], "policies": []}'), 1, 1, 'key "policies" is written twice', "export it again"),
    ("rabbitmq", "deep", text("[" * 200_000), 1, 1, "nested", "export it again"),
    ("rabbitmq", "a-value-that-cannot-be", text(DEFINITIONS % '{"name": "b", "pattern": "x", "definition": {"message-ttl": -5}}'), 1, 4, "policy b: message-ttl", "correct it"),
    ("rabbitmq", "seventeen-megabytes", text(b" " * (17 << 20)), 1, 1, "16 MiB", "import it in parts"),
    ("rabbitmq", "loop", loop, 2, 1, "cannot be read", "name a path that can"),
    ("rabbitmq", "unreadable", unreadable, 2, 1, "cannot be read", "name a path that can"),
    ("rabbitmq", "folder", lambda path: path.mkdir(), 2, 1, "cannot be read", "name a path that can"),
    ("artemis", "json", text("{}"), 1, 1, "not XML", "export it again"),
    ("artemis", "unclosed", text("<a>\n<b>\n</a>"), 1, 3, "not XML", "export it again"),
    ("artemis", "entity-bomb", text('<?xml version="1.0"?>\n<!DOCTYPE l [\n<!ENTITY a "b">]>\n<l>&a;</l>'), 1, 2, "document type or entity", "write the file without"),
    ("artemis", "wrong-number", text(XML % "<redelivery-delay>5 s</redelivery-delay>"), 1, 3, "'5 s' is no number", "write one"),
    ("artemis", "no-match", text("<b>\n<address-setting>\n</address-setting></b>"), 1, 2, "without match", "write the addresses"),
    ("artemis", "another-file", text("<project/>"), 1, 1, "no address-setting", "broker.xml"),
    ("sqs", "wrong-count", text('[\n{"QueueName": "a", "RedrivePolicy": {"maxReceiveCount": 3, "deadLetterTargetArn": "x:d"}},\n{"QueueName": "b", "RedrivePolicy": {"maxReceiveCount": "many", "deadLetterTargetArn": "x:d"}}]'), 1, 3, "queue b: maxReceiveCount 'many'", "write how often"),
    ("sqs", "broken-inside", text('{"QueueName": "b",\n"RedrivePolicy": "{maxReceiveCount: 3}"}'), 1, 1, "queue b, RedrivePolicy: not JSON", "export it again"),
    ("yandex", "a-number", text("42"), 1, 1, "expected an object, found a number", "--from"),
    ("emq", "own-dlq", text('[\n{"queueName": "q",\n "redrivePolicy": {"dlqName": "q", "maxReceiveTime": 1}}]'), 1, 2, "its own DLQ", "name another"),
    ("emq", "twice", text('[\n{"queueName": "q", "redrivePolicy": {"dlqName": "d", "maxReceiveTime": 1}},\n{"queueName": "q", "redrivePolicy": {"dlqName": "d", "maxReceiveTime": 2}}\n]'), 1, 3, "queue q has two", "keep one"),
    ("emq", "escapes", text('{"queueName": "\\u001b[31m", "redrivePolicy": {}}'), 1, 1, "dlqName is missing", "write the name"),
]  # fmt: skip


@pytest.mark.parametrize("row", IMPORTED, ids=[f"{row[0]}-{row[1]}" for row in IMPORTED])
def test_import_says_where_what_and_what_now(
    row: tuple[str, str, Make, int, int, str, str], tmp_path: Path, typed: Run
) -> None:
    origin, _, make, code, line, what, now = row
    path = tmp_path / "export"
    make(path)
    done = typed("policy", "import", "--from", origin, str(path))
    assert done.stdout == ""
    first = lines_about(done.stderr, path)[0]
    assert (done.returncode, int(first["line"])) == (code, line), done.stderr
    assert what in first["rest"]
    assert now in first["rest"]
