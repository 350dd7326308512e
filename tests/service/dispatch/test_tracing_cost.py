"""Without traces the way of a letter is the code that it would be if there were none: no line of it asks."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType, ModuleType

import pytest

from dlx_router.broker import consumer, publisher
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service import dispatch, inflight
from dlx_router.service.dispatch import decider, tracing
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.sources import guard, relay
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

# A letter's way, by the folders that hold it; tracing is what is beside it.
WAY = (
    consumer, publisher, guard, relay,
    *(import_module(f"{package.__name__}.{info.name}")
      for package in (dispatch, inflight) for info in iter_modules(package.__path__) if info.name != "tracing"),
)  # fmt: skip
WORDS = {"traces", "_traces", "span", "tracer", "tracing", "begun"}


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Every function of a module as it is run."""
    assert module.__file__
    waiting = [compile(Path(module.__file__).read_text(encoding="utf-8"), module.__file__, "exec")]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _asking(module: ModuleType) -> list[str]:
    return [
        code.co_name
        for code in _codes(module)
        if code.co_name != "<module>" and not WORDS.isdisjoint({*code.co_names, *code.co_varnames, *code.co_freevars})
    ]


@pytest.mark.parametrize("module", WAY, ids=lambda module: module.__name__)
def test_no_line_on_the_way_of_a_letter_knows_of_traces(module: ModuleType) -> None:
    assert _asking(module) == []


def test_what_knows_of_them_would_be_found() -> None:
    assert {"judge", "apply", "_end"} <= {*_asking(tracing)}


def test_without_traces_the_desk_is_the_plain_one() -> None:
    journal = Journal(
        mode=Mode.OFF,
        name="journal",
        vhost="/",
        router_id="test",
        readiness=Readiness(),
        on_lost=lambda _events: None,
        confirm_timeout_s=1,
    )
    made = tracing.decider(InForce.of(Rules(PolicySet(()), Names(), 30_000), "/"), Metrics(), journal, None)
    assert type(made) is decider.Decider


def test_the_router_imports_nothing_of_opentelemetry_by_itself() -> None:
    code = "import sys, dlx_router.admin.daemon; print([one for one in sys.modules if 'opentelemetry' in one])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
