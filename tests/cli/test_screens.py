"""What each command shows on a terminal: no ID is broken or cut, whatever the width."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from dlx_router.admin.api import models, tasks
from dlx_router.broker.management import Snapshot, Standing
from dlx_router.cli import doctor, output, provisioning, timestamps, webhooks
from dlx_router.cli.doctor import Diagnosis, Level
from dlx_router.cli.main import main
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.config.webhooks.endpoint import Endpoint
from dlx_router.core.names import Names
from dlx_router.provisioning.plan import plan
from dlx_router.provisioning.removal import Remains
from dlx_router.webhooks.sender import Answer
from tests.cli import recorded
from tests.cli.recorded import AUDITS, DRY, GRAVE, GROUP, LETTER, LONG, OTHER, QUEUE, STOPPED, TASK, Terminal
from tests.support.policies import BROKEN

ROOT: Final = Path(__file__).parents[2]
ADDRESS: Final = "http://127.0.0.1:54321"
WIDTHS: Final = (40, 80, 120)
IDS: Final = (LETTER, OTHER, GROUP, TASK, DRY["id"], STOPPED["id"], QUEUE, GRAVE, LONG, f"DLQ.{LONG}")
FAILING: Final = """\
version: 1
tests:
  - name: the second retry of an order waits twice as long as the first one, whatever its routing key
    letter: {queue: orders.new, reason: rejected, attempts: 2}
    expect: {decision: retry, wait: 3s}
"""


def policies() -> Any:
    return load_policies(ROOT / "policies", Names())


def shown_plan() -> None:
    snapshot = Snapshot("/", (4, 3), (Standing(QUEUE, "quorum"), Standing("mails", "classic")))
    provisioning.print_plans([plan(policies().policies, snapshot, Names(), frozenset())], as_json=False)


def shown_removal() -> None:
    names = Names()
    kept = (f"queue {names.journal}: the journal, which explains every letter; --with-journal removes it",)
    blockers = [f"queue {names.inbox} holds 3 messages, which a router would still decide about"]
    remains = Remains(
        "/", ("dlx-router.own",), (names.declared,), (names.inbox, names.parking), tuple(blockers), kept, ledger=True
    )
    provisioning.print_removal([remains], as_json=False)


def shown_diagnoses() -> None:
    queues: list[dict[str, Any]] = [
        {"name": LONG, "type": "classic", "arguments": {"x-dead-letter-exchange": "dlx-router.inbox"}},
        {"name": "mails", "type": "quorum"},
    ]
    findings = [finding for queue in queues for finding in doctor.queue(queue, Names(), selected=True)]
    alarm = doctor.alarms([("rabbit@one", "memory"), ("rabbit@two", "disk")])
    ok = Diagnosis("connection", Level.OK, "vhost '/' at 10.0.0.1:5672")
    doctor.show([alarm, *findings, ok], as_json=False)


def shown_webhooks() -> None:
    to = [
        Endpoint(name, host, "", form, frozenset())
        for name, host, form in (
            ("chat", "hooks.slack.com", "slack"),
            ("prod-4711.westeurope.logic.azure.com-1f2e3d4c", "prod-4711.westeurope.logic.azure.com", "teams"),
            ("pager", "10.0.0.7", "cloudevents"),
        )
    ]
    refused = "10.0.0.7 is a private address, where nothing is sent; name its network in allow-addresses"
    answers = [
        Answer(taken=True, why="", status=200, took_ms=87, text="ok"),
        Answer(taken=False, why="HTTP 404", status=404, took_ms=1204, text='{"error": "The workflow is turned off."}'),
        Answer(taken=False, why=refused, refused=True),
    ]
    output.table(webhooks.COLUMNS, [webhooks._row(*pair) for pair in zip(to, answers, strict=True)])


# By name: what is typed, or a function that prints what a command prints that asks a broker.
SCREENS: Final[dict[str, list[str] | Callable[[], None]]] = {
    "status": ["status"],
    "queues": ["queues"],
    "groups": ["groups"],
    "groups-show": ["groups", "show", GROUP],
    "groups-resolve": ["groups", "resolve", GROUP, "--yes"],
    "letters-list": ["letters", "list"],
    "letters-search": ["letters", "search", "order-4711", "--limit", "2"],
    "letters-show": ["letters", "show", LETTER],
    "letters-comment": ["letters", "comment", LETTER, "asked the warehouse, they count again on Monday"],
    "redrive-list": ["redrive", "list"],
    "redrive-show": ["redrive", "show", TASK],
    "redrive-show-dry-run": ["redrive", "show", DRY["id"]],
    "redrive-show-stopped": ["redrive", "show", STOPPED["id"]],
    "redrive-pause": ["redrive", "pause", TASK],
    "redrive-start-asks": ["redrive", "start", GRAVE, "--filter", "reason == 'rejected'", "--canary", "10"],
    "redrive-start": ["redrive", "start", GRAVE, "--yes"],
    "discard": ["discard", GRAVE, "--yes"],
    "edit": ["edit", LETTER, "--queue", GRAVE, "--header", "mended-by=me", "--yes"],
    "edit-asks": ["edit", LETTER, "--queue", GRAVE, "--header", "mended-by=me"],
    "audits": ["audits"],
    "webhooks-test": shown_webhooks,
    "policy-lint": ["policy", "lint", "broken"],
    "policy-lint-fine": ["policy", "lint", "policies"],
    "policy-explain": ["policy", "explain", QUEUE],
    "policy-explain-set": ["policy", "explain", QUEUE, "--set", "--queue-type", "quorum"],
    "policy-explain-nothing": ["policy", "explain", LONG, "--policies", "narrow"],
    "policy-diff": ["policy", "diff", "narrow", "policies"],
    "policy-diff-equal": ["policy", "diff", "policies", "policies"],
    "policy-test": ["policy", "test", "failing"],
    "permissions": ["permissions"],
    "permissions-apply": ["permissions", "--for", "apply", "--user", "deployer"],
    "plan": shown_plan,
    "destroy": shown_removal,
    "doctor": shown_diagnoses,
}
ENDS: Final = dict.fromkeys(SCREENS, 0) | {
    "status": 1,
    "redrive-start-asks": 1,
    "edit-asks": 1,
    "policy-lint": 1,
    "policy-test": 1,
    "policy-diff": 1,
}


@contextmanager
def at_work() -> Iterator[str]:
    """A folder with policies, the router's answers, and nothing of the world outside."""
    before = dict(os.environ)
    with TemporaryDirectory() as name, chdir(name), recorded.router() as address:
        (Path(name) / "policies").symlink_to(ROOT / "policies")
        for folder, file, text in (
            ("broken", "orders.yaml", BROKEN),
            ("narrow", "orders.yaml", BROKEN.replace("0\n", "3\n").replace("dealy", "delay")),
            ("failing", "orders.test.yaml", FAILING),
        ):
            Path(folder).mkdir()
            Path(folder, file).write_text(text, encoding="utf-8")
        (Path("failing") / "orders.yaml").symlink_to(ROOT / "policies" / "orders.yaml")
        for variable in [name for name in os.environ if name.startswith("DLX_ROUTER_")]:
            del os.environ[variable]
        os.environ |= {"DLX_ROUTER_API_URL": address, "TZ": "UTC", "NO_COLOR": "1"}
        time.tzset()
        try:
            yield address
        finally:
            os.environ.clear()
            os.environ.update(before)
            time.tzset()


def typed(what: list[str] | Callable[[], None], width: int, address: str) -> tuple[int, str]:
    """How it ended, and what stands on the screen: first what was printed, then what was said."""
    os.environ["COLUMNS"] = str(width)
    code: Any = 0
    with redirect_stdout(Terminal()) as out, redirect_stderr(Terminal()) as err:
        if callable(what):
            what()
        else:
            try:
                main(what)
            except SystemExit as ended:
                code = ended.code or 0
    return int(code), f"{out.getvalue()}{err.getvalue()}".replace(address, ADDRESS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "time", SimpleNamespace(time=lambda: recorded.NOW_MS / 1000))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with at_work() as url:
        yield url


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("name", sorted(SCREENS))
def test_no_id_is_broken_at_any_width(name: str, address: str) -> None:
    code, widest = typed(SCREENS[name], 400, address)
    assert code == ENDS[name], widest
    for width in WIDTHS:
        screen = typed(SCREENS[name], width, address)[1]
        assert [item for item in IDS if item in widest and item not in screen] == [], f"broken at {width}"
        assert "…\n" not in screen, "cut"


@pytest.mark.usefixtures("clock")
def test_what_goes_into_a_pipe_has_a_line_for_each_row(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["redrive", "list"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "task"
    assert [row.split()[0] for row in rows] == [TASK, DRY["id"], STOPPED["id"]]


def test_a_list_without_the_letters_of_a_vhost_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The index of the router does not read that vhost's journal now."""
    lacks = {**recorded.ANSWERS["/letters"], "as_of": {"/": 1, "shop": None}}
    with at_work(), recorded.router({"/letters": lacks}) as address:
        os.environ["DLX_ROUTER_API_URL"] = address
        with pytest.raises(SystemExit) as ended:
            main(["letters", "list", "--json"])
    printed = capsys.readouterr()
    said = "vhost shop: the router's index does not read its journal now; see dlx-router status\n"
    assert (ended.value.code or 0, printed.err) == (0, said)
    assert len(json.loads(printed.out)) == 2


def test_the_answers_are_those_of_the_api() -> None:
    answers: dict[str, Any] = {**recorded.ANSWERS}
    for path, model in (
        ("/queues", models.Queues),
        ("/groups", models.Groups),
        ("/letters", models.Letters),
        ("/tasks", tasks.AllTasks),
        ("/audits", models.Audits),
        ("/status", models.Status),
        ("/tasks/preview", tasks.Preview),
        ("/policies", models.Policies),
        (f"/letters/{LETTER}", models.LetterCopies),
        (f"/letters/{LETTER}/comments", models.Comments),
    ):
        read = TypeAdapter(model).validate_python(answers[path])
        assert set(read.model_dump()) == set(answers[path]), path
    assert {field.name for field in fields(tasks.OneTask)} == {*recorded.task()}
    assert {*models.WholeLetter.model_fields} == {*recorded.WHOLE}
    assert {*models.Group.model_fields} == {*recorded.GROUP_OF_IT}
    assert len(AUDITS) == 6
