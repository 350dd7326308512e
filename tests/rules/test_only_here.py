"""What a head comment says to happen in one place only happens nowhere else: by name, in the source as it stands."""

import ast
from collections.abc import Callable
from typing import Final

import pytest

from tests.rules.source import Source, called, dotted, sources

Where = Callable[[Source], bool]


def _calls(*names: str) -> Where:
    return lambda source: any(called(call) in names for call in source.calls())


def _imports(*packages: str, at_the_top: bool = False) -> Where:
    return lambda source: any(module.split(".")[0] in packages for module, _ in source.imports(at_the_top=at_the_top))


def _settles(source: Source) -> bool:
    """By a consumer: its letters' deliveries, or messages of a stream."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in {"settle", "settle_run", "reject", "give_back"}
        and dotted(call.func.value).endswith("consumer")
        for call in source.calls()
    )


def _acks(source: Source) -> bool:
    return any(called(call) in {"frames.ack", "frames.nack", "frames.reject"} for call in source.calls())


def _reads(source: Source) -> bool:
    methods = {"commands.Basic.Consume", "commands.Basic.Get"}
    return any(isinstance(node, ast.Attribute) and dotted(node) in methods for node in source.nodes)


def _begins_a_read(source: Source) -> bool:
    makes = {"Consumer", "Holder", "Getter", "Peek", "_Holding", "Scan", "peek"}
    ends = ("consumers.consume", "consumers.fetch", "_consumers.consume")
    return any(called(call) in makes or called(call).endswith(ends) for call in source.calls()) or any(
        isinstance(node, ast.Attribute) and dotted(node).endswith(ends) for node in source.nodes
    )


def _connects(source: Source) -> bool:
    opens = {"create_connection", "open_connection"}
    return any(called(call).rpartition(".")[2] in opens for call in source.calls())


# What, in which folder, how it is seen, and the only places.
ONLY: Final[dict[str, tuple[str, Where, set[str]]]] = {
    "a letter is acked, rejected or given back: after its copies were confirmed": (
        "dlx_router/service",
        _settles,
        {"service/dispatch/settler.py"},
    ),
    "acknowledgements are written": (
        "dlx_router",
        _acks,
        {"broker/consumer.py", "spark/amqp.py"},
    ),
    "basic.consume and basic.get are built": (
        "dlx_router",
        _reads,
        {
            "broker/consumer.py",
            *("broker/state.py", "service/dispatch/in_use.py"),  # the answers of a channel; a lock
            "spark/amqp.py",  # of the journal
        },
    ),
    "a connection to RabbitMQ is opened": (
        "dlx_router",
        _connects,
        {"broker/link.py", "broker/amqp10.py", "spark/amqp.py"},
    ),
    "a letter is dropped, which its policy alone may want": ("dlx_router", _calls("Discard"), {"core/decision.py"}),
    "it is decided": (
        "dlx_router",
        _calls("decide"),
        {
            "cli/policy_explain.py",
            "config/policytest.py",
            "service/dispatch/decider.py",
            "spark/backtest/replay.py",
        },
    ),
    "the keys of policies are described": ("dlx_router/config", _calls("Key"), {"config/language/keys.py"}),
    "OpenTelemetry is imported with a module": (
        "dlx_router",
        _imports("opentelemetry", at_the_top=True),
        set(),
    ),
    "the report runs Spark": ("dlx_router/spark/report", _imports("pyspark"), {"spark/report/by_spark.py"}),
    "a Spark session is made": (
        "dlx_router",
        lambda source: any(called(call).endswith(".getOrCreate") for call in source.calls()),
        {"spark/session.py"},
    ),
}


@pytest.mark.parametrize("what", ONLY)
def test_it_happens_in_these_places_only(what: str) -> None:
    folder, happens, places = ONLY[what]
    assert {source.name.removeprefix("dlx_router/") for source in sources(folder) if happens(source)} == places


# Who begins to read a queue, and which methods of service/queue_reads.QueueReads admit it where. Those of the second
# group read queues and streams of the router alone.
GUARDED: Final[dict[str, dict[str, set[str]]]] = {
    "service/leases/holder.py": {
        "service/leases/scan.py": {"admit"},
        "service/leases/manager.py": {"require_readable", "crashed"},
    },
    "service/redrive/worker.py": {
        "service/redrive/bindings.py": {"admit", "check_head"},
        "service/redrive/tasks.py": {"admit"},
        "service/redrive/runner.py": {"crashed"},
    },
    "service/redrive/scan.py": {"service/redrive/bindings.py": {"admit", "check_head"}},
    "service/sources/attach.py": {
        "service/sources/attach.py": {"require_lasting"},
        "service/sources/registry.py": {"require_readable"},
        "service/vhost/session.py": {"crashed"},
    },
    "service/sources/consumers.py": {"service/sources/attach.py": {"require_lasting"}},
    "service/upkeep/import_queue.py": {
        "service/upkeep/import_queue.py": {"admit"},
        "service/redrive/preview.py": {"check_head", "crashed"},
    },
    "service/redrive/preview.py": {"service/redrive/preview.py": {"check_head", "crashed"}},
    "service/queue_reads.py": {"service/redrive/bindings.py": {"admit"}},
}
OWN: Final = {
    *("broker/reading.py", "broker/state.py"),  # journal and state
    *("service/vhost/session.py", "service/sources/retention.py"),  # inbox, release, fifo, retired
}


def test_every_read_of_a_queue_that_the_router_does_not_own_passes_the_guard() -> None:
    files = {source.name.removeprefix("dlx_router/"): source for source in sources("dlx_router")}
    reading = {name for name, source in files.items() if _begins_a_read(source) and not name.startswith("spark/")}
    assert reading == {*GUARDED, *OWN}
    for where in GUARDED.values():
        for name, methods in where.items():
            calls = {called(call).rpartition(".reads.")[2] for call in files[name].calls() if ".reads." in called(call)}
            calls |= {called(call).removeprefix("reads.") for call in files[name].calls()}
            assert methods <= calls, name


def test_decide_has_one_meaning() -> None:
    made = [
        source.name for source in sources("dlx_router") for function in source.functions() if function.name == "decide"
    ]
    assert made == ["dlx_router/core/decision.py"]
