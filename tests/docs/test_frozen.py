"""Names that users' scripts, dashboards, policies and consumers rely on: one that is gone here breaks somebody."""

import json
from typing import Any, Final

import pytest
from typer.core import TyperGroup

from dlx_router.cli.main import program
from dlx_router.client import declaration
from dlx_router.config.environment.settings import Settings, variable
from dlx_router.core import record, words
from dlx_router.core.letter import Death, First, Props
from dlx_router.core.names import Names
from dlx_router.journal.events import KIND_OF
from dlx_router.journal.fields import KINDS
from dlx_router.wire import table
from tests.docs import known


def _words(text: str, between: str = " ") -> list[str]:
    return [part.strip() for part in text.replace("\n", " ").split(between) if part.strip()]


SETTINGS: Final = _words("""
AMQP_URL AMQP_URL_FILE MANAGEMENT_URL MANAGEMENT_URL_FILE VHOSTS POLICIES PREFIX DECLARE HTTP_HOST HTTP_PORT
API_TOKENS_FILE API_URL API_TOKEN API_TOKEN_FILE PREFETCH IN_FLIGHT_BYTES DRAIN_SECONDS CONFIRM_TIMEOUT HEARTBEAT
TLS_CA TLS_CERT TLS_KEY TLS_SERVER_NAME JOURNAL INDEX_PATH LOG_FORMAT LOG_LEVEL PROVENANCE_KEY_FILE UNROUTABLE_GRACE
MAX_DEAD_LETTER_QUEUES
""")
COMMANDS: Final = _words(
    """
run, policy lint, policy explain, policy diff, policy test, policy schema, policy import, plan, apply, destroy,
permissions, doctor, queues, letters list, letters show, letters search, letters export,
letters comment, groups,
redrive start, redrive list, redrive show,
redrive pause, redrive resume, redrive cancel, discard, edit, status, audits, console, webhooks test,
pipeline ingest,
pipeline compact, pipeline verify,
pipeline report, pipeline groups, pipeline backtest, pipeline redrive, pipeline advise, pipeline doctor
""",
    ",",
)
METRICS: Final = _words("""
deliveries_total settled_total given_back_total in_flight decisions_total publish_refused_total route_seconds
confirm_seconds release_lateness_seconds waiting oldest_letter_timestamp_seconds policy_info reloads_total
broker_connected breaker_state journal_gaps_total redrive_letters_total leases lease_letters_total webhooks_total
build_info
""")
CAUSES: Final = _words("""
attempts_spent never_retry max_elapsed no_policy unknown_origin unroutable missing_exchange forbidden
routing_key_too_long cycle loop redrive_exhausted malformed too_large outage target_refused retention
""")
ACTIONS: Final = {
    "retry": "retried",
    "dead_letter": "dead_lettered",
    "park": "parked",
    "quarantine": "quarantined",
    "forward": "forwarded",
    "discard": "discarded",
    "hold": "held",
}
MEMBERS: Final = _words("""
v id state vhost failed_queue first attempts redrives tries reason cause policy revision due_ms first_death_ms
last_death_ms deaths props error redrive_id parent shadowed digest mac
""")


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_frozen_are_there(name: str) -> None:
    assert f"DLX_ROUTER_{name}" in map(variable, Settings.model_fields)


def test_where_it_is_found_unless_somebody_says_otherwise() -> None:
    fields = Settings.model_fields
    defaults = {name: fields[name].default for name in ("prefix", "http_host", "http_port", "declare", "journal")}
    assert defaults == {
        "prefix": "dlx-router", "http_host": "127.0.0.1", "http_port": 9719, "declare": "auto",
        "journal": "best-effort",
    }  # fmt: skip
    assert (fields["unroutable_grace_ms"].default, fields["max_dead_letter_queues"].default) == (30_000, 1000)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_that_are_frozen_are_there(line: str) -> None:
    command: Any = program()
    for word in line.split():
        assert isinstance(command, TyperGroup)
        command = command.commands[word]


@pytest.mark.parametrize("name", METRICS)
def test_metrics_that_are_frozen_are_shown(name: str) -> None:
    shown = known.metrics()
    assert shown & {f"dlx_router_{name}", f"dlx_router_{name}_bucket"}


def test_names_in_the_broker() -> None:
    names = Names("p")
    assert [
        names.inbox, names.fifo, names.declared, names.release, names.return_, names.parking, names.quarantine,
        names.retired, names.state, names.journal, names.delay(5000),
    ] == [
        "p.inbox", "p.inbox.fifo", "p.declared", "p.release", "p.return", "p.parking", "p.quarantine",
        "p.retired", "p.state", "p.journal", "p.delay.5000",
    ]  # fmt: skip


def test_words_that_are_frozen_are_said() -> None:
    assert {*CAUSES} == {cause.value for cause in words.Cause}
    assert {state.value for state in words.State} == {"retrying", "dead", "parked", "held"}
    assert {"rejected", "expired", "maxlen", "delivery_limit"} == words.BROKER_REASONS
    assert {action.value: KIND_OF[action] for action in words.Action if action.value in ACTIONS} == ACTIONS
    assert {*ACTIONS.values(), "released", "redriven", "edited", "retired", "audit"} <= {*KINDS}


def test_headers_keep_their_names() -> None:
    assert (record.HEADER, record.ID_HEADER) == ("dlx-router", "dlx-router-id")
    assert (table.PUB, declaration.HEADER) == (b"dlx-router-pub", "dlx-death")


def test_members_of_the_record() -> None:
    death = Death("q", "rejected", 1, 1_700_000_000, "shop", ("k",), "5000")
    whole = record.Record(
        id="i", state="dead", vhost="/", failed_queue="q", attempts=1, redrives=0, tries=0, reason="rejected",
        policy="p", revision="0" * 12, first_death_ms=1, last_death_ms=2, deaths=(death,), crc32=3, size=4,
        first=First("q", "shop", ("k",), "rejected"), cause="attempts_spent", due_ms=5,
        props=Props(message_id="m", user_id="u", expiration="1", priority=2, delivery_mode=1), cc=("c",),
        error={"type": "T"}, redrive_id="r", parent="o", shadowed={"a": "b"},
    )  # fmt: skip
    members = json.loads(record.encode(whole, b"k" * 32, record.AT_REST_BYTES))
    assert {*MEMBERS} <= {*members}
    assert {*members["props"]} == {"message_id", "user_id", "cc", "expiration", "priority", "delivery_mode"}
    assert ({*members["digest"]}, {"queue", "exchange", "routing_keys"} <= {*members["first"]}) == (
        {"crc32", "size"},
        True,
    )
    assert members["deaths"] == [["q", "rejected", 1, 1_700_000_000, "shop", ["k"], "5000"]]
    assert members["v"] == 1
