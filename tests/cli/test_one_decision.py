"""One decision on every surface: the router, explain (command and API), tests, backtest, doctor and reload agree."""

import asyncio
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from dlx_router.admin.api import models
from dlx_router.admin.api import policies as api
from dlx_router.admin.api.context import Context
from dlx_router.cli import doctor
from dlx_router.cli import policy_explain as explain
from dlx_router.cli.main import main
from dlx_router.config import policytest
from dlx_router.config.api_access.tokens import Role, caller
from dlx_router.config.environment.settings import Settings
from dlx_router.config.language.keys import DEFINITION, REASONS
from dlx_router.config.language.value_text import value_text
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.policytest import Case, judged, run_tests
from dlx_router.core import publication
from dlx_router.core.decision import decide
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter
from dlx_router.core.policy import TYPES, Effective, Selector, SelectorKind
from dlx_router.service.app import App
from dlx_router.service.inflight.in_force import Rules
from dlx_router.service.inflight.job import resource_of
from dlx_router.service.inflight.routes import Resource
from dlx_router.service.vhost.reload import foreseen
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.spark.backtest.replay import files_of, judge_of, outcome_of
from tests.core.core_samples import CONTENT, hard_law

NAMES: Final = Names()
TYPED: Final = [
    {
        "name": "typed",
        "queue": "orders",
        "apply-to": "quorum_queues",
        "definition": {
            "redelivery-delay": 5000,
            "never-retry": ['header("x-bad") == "1"'],
            "max-length-bytes": "64KiB",
        },
    },
    {"name": "any", "match": "#", "definition": {"max-delivery-attempts": 3}},
]
GRAVE: Final = [{**TYPED[0], "definition": {"dead-letter-queue-prefix": "grave."}}]

# -- surfaces -------------------------------------------------------------------------------------------------------


def written(folder: Path, policies: list[dict[str, Any]], **more: Any) -> LoadedPolicies:
    """The policies as a file, which is JSON and therefore YAML, and as they are read."""
    (folder / "p.yaml").write_text(json.dumps({"version": 1, "policies": policies, **more}), encoding="utf-8")
    return load_policies(folder, NAMES)


@cache
def attendant() -> VhostRunner:
    """The router's part for a vhost, as `run` makes it; it has not connected to anything."""
    settings = Settings.load({"AMQP_URL": "amqp://guest:guest@127.0.0.1:1/"})
    with TemporaryDirectory() as folder:
        return App(settings, written(Path(folder), []))._attendant("/")


def attending(loaded: LoadedPolicies, types: Mapping[str, str]) -> VhostRunner:
    """The same with these policies in force, and the types of queues told."""
    runner = attendant()
    runner.use(runner.built(Rules(loaded.policies, NAMES, 30_000), ()))
    runner._decider.in_force = runner._decider.in_force.with_types(dict(types))
    return runner


def asked(runner: VhostRunner, queue: str, reason: str = "rejected") -> dict[str, Any]:
    """GET /api/v1/explain."""
    context = Context("r", NAMES, {"/": runner})
    answer = asyncio.run(api.explain(context, caller("vic", Role.VIEWER), queue, "/", reason))
    explanation = models.Explanation.model_validate_json(bytes(answer.body))  # as the description of the API has it
    return explanation.model_dump()


def listed(runner: VhostRunner) -> dict[str, dict[str, str]]:
    """GET /api/v1/policies: by name, the keys of each."""
    answer = asyncio.run(api.policies(Context("r", NAMES, {"/": runner}), caller("vic", Role.VIEWER)))
    return {policy["name"]: policy["keys"] for policy in json.loads(bytes(answer.body))["policies"]}


def printed(folder: Path, queue: str, reason: str, queue_type: str | None) -> list[str]:
    """The lines of `policy explain`, with single blanks."""
    out = io.StringIO()
    with redirect_stdout(out):
        kind = None if queue_type is None else explain.QueueType(queue_type)
        explain.explain(queue, policies=folder, reason=reason, queue_type=kind)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


@dataclass(frozen=True)
class Died:
    """A letter that has just died; `queue_type` None: nobody knows it."""

    queue: str
    queue_type: str | None
    reason: str
    attempts: int

    @property
    def types(self) -> dict[str, str]:
        """As the management API tells them."""
        return {} if self.queue_type is None else {self.queue: self.queue_type}

    @property
    def written(self) -> dict[str, Any]:
        """As a test beside policies says it."""
        case = {"queue": self.queue, "reason": self.reason, "attempts": self.attempts}
        return case if self.queue_type is None else {**case, "queue-type": self.queue_type}


def letter_of(died: Died, truth: Effective | None) -> Letter:
    """The letter as tests beside policies make it up."""
    counts = policytest._counts(died.reason, truth)
    return policytest._letter(died.written, ("/", died.queue, died.reason), NAMES.inbox, counts=counts)


def event_of(letter: Letter) -> dict[str, Any]:
    """The letter as the journal tells it."""
    (death,) = letter.history
    place = {"queue": death.queue, "exchange": death.exchange, "routing_keys": list(death.routing_keys)}
    fresh = {"queue": death.queue, "reason": letter.reason, "count": 1}
    same = (
        "vhost",
        "source",
        "exchange",
        "routing_key",
        "failed_queue",
        "reason",
        "base_attempts",
        "redrives",
        "tries",
    )
    return {
        **{name: getattr(letter, name) for name in same},
        "id": "i", "event_id": "e", "kind": "retried", "ts_ms": 0, "draw": 0.0, "arrival": letter.arrival.value,
        "deaths": [{**place, "reason": death.reason, "count": 1, "time_ms": 0}], "fresh": [fresh],
        "first": {**place, "reason": death.reason}, "first_death_ms": 0, "last_death_ms": 0, "digest": {"size": 0},
    }  # fmt: skip


# -- the law --------------------------------------------------------------------------------------------------------

VALUES: Final[Mapping[str, list[Any]]] = {
    "max-delivery-attempts": [1, 2, 3, -1],
    "redelivery-delay": [0, 100, 5000, "90s", "1h"],
    "redelivery-delay-multiplier": [1.5, 2],
    "retry-on": [["rejected"], ["rejected", "expired", "application"]],
    "never-retry": [["attempts > 1"], ['reason == "expired"', 'size > 100 && vhost == "/"']],
    "redelivery-max-elapsed": ["30s", "2h"],
    "outage": [{"deaths": 5, "within": "10s", "probe-every": 5000}],
    "alert": [{"depth": 1_234_567, "oldest": "1h"}, {"rate": 0.5}],
    "dead-letter-exchange": ["", "dlx"],
    "dead-letter-routing-key": ["dead.{queue}.{reason}"],
    "dead-letter-queue-prefix": ["grave."],
    "dead-letter-queue-type": ["classic"],
    "message-ttl": ["10m", 1500],
    "max-length-bytes": ["64KiB", 1000],
    "dead-letter-queue-ttl": ["7d"],
    "allow-queues": [["failed.#", "a"]],
    "journal": [{"events": "final", "redact": ["x-token"]}],
    "max-redrives": [1, -1],
    "discard": [True],
}
definitions = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})
of_reasons = definitions.map(lambda keys: {key: value for key, value in keys.items() if not DEFINITION[key].of_queue})
overlays = st.fixed_dictionaries({}, optional=dict.fromkeys(("expired", "application:odd"), of_reasons))
selectors = st.sampled_from([("queue", "orders"), ("match", "#"), ("match", "orders.#"), ("pattern", "^or")])


@st.composite
def policies(draw: st.DrawFn) -> list[dict[str, Any]]:
    out = []
    for at in range(draw(st.integers(1, 4))):
        kind, text = draw(selectors)
        named = {"name": f"p{at}", kind: text, "priority": draw(st.integers(0, 2)), "inherit": draw(st.booleans())}
        of = draw(st.sampled_from(["queues", "classic_queues", "quorum_queues", "quorum_queues"]))
        keys = draw(definitions) | ({"on": on} if (on := draw(overlays)) else {})
        out.append({**named, "apply-to": of, **({"definition": keys} if keys else {})})
    return out


@pytest.mark.slow
@hard_law
@given(
    policies(),
    st.builds(
        Died,
        st.sampled_from(["orders", "orders.eu", "dlx-router.parking"]),
        st.sampled_from(["classic", "quorum", "stream", None]),
        st.sampled_from([*REASONS, "application:odd"]),
        st.integers(1, 4),
    ),
)
@example(TYPED, Died("orders", "quorum", "rejected", 1))
@example(TYPED, Died("orders", "classic", "rejected", 3))
@example(TYPED, Died("orders", None, "rejected", 3))
@example(GRAVE, Died("orders", "quorum", "rejected", 1))
@example(GRAVE, Died("orders", "classic", "rejected", 1))
def test_every_surface_says_what_the_router_does(policies: list[dict[str, Any]], died: Died) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            loaded = written(folder, policies)
        except PolicyErrors:
            reject()
        router = attending(loaded, died.types)
        truth = router._decider.in_force.policy_of(died.queue, died.reason)
        explained(folder, loaded, truth, died)
        judged_again(folder, loaded, truth, died)
        if died.queue_type is not None and not NAMES.is_own(died.queue):
            selected = truth is not None and truth.named_exactly
            assert doctor.is_selected(loaded, "/", {"name": died.queue, "type": died.queue_type}) is selected
        foresaw = [*foreseen(loaded.policies, "/", died.types)]
        assert needed(loaded, died) <= {None, *foresaw}
        held = attending(loaded, died.types)._decider.in_force
        assert not foresaw or held.policy_of("orders", "rejected") is not None


def explained(folder: Path, loaded: LoadedPolicies, truth: Effective | None, died: Died) -> None:
    """The API and the command show the policies, the values and the lines of what is in force, in the same words."""
    unknown, router = unjudged(loaded, died), attending(loaded, died.types)
    answer, names = asked(router, died.queue, died.reason), [] if truth is None else list(truth.names)
    rows = [" ".join(f"{row['key']} {row['value']} {row['set_by']}".split()) for row in answer["keys"]]
    assert (answer["policies"], answer["queue_type"], len(rows)) == (
        names,
        died.queue_type,
        len(DEFINITION) * bool(names),
    )
    assert [text.split()[1] for text in answer["left_out"]] == unknown
    shown = listed(router)
    for policy in loaded.policies.policies:
        assert shown[policy.name] == {k: value_text(DEFINITION[k], each.value) for k, each in policy.definition.items()}
    if died.queue_type == "stream" or (died.queue_type == "classic" and died.reason == "delivery_limit"):
        return  # the command says that there is no such death
    lines = printed(folder, died.queue, died.reason, died.queue_type)
    assert [line.split()[1] for line in lines if "left out; see --queue-type" in line] == unknown
    assert rows == [line for line in lines if line.split(" ", 1)[0] in DEFINITION]
    assert any(line.startswith(f"No policy names queue {died.queue} ") for line in lines) is (truth is None)
    for key, setting in {} if truth is None else truth.settings.items():
        assert f"{key} {value_text(DEFINITION[key], setting.value)} {setting.source} ({setting.source.policy})" in lines


def judged_again(folder: Path, loaded: LoadedPolicies, truth: Effective | None, died: Died) -> None:
    """`policy test` and the backtest decide about the letter as the router does, and name the policies left out."""
    unknown, letter = unjudged(loaded, died), letter_of(died, truth)
    decision = decide(letter, truth, 0, 0.0)
    tested = judged(Case("law", "t", 1, died.written, policytest._outcome(decision, truth)), loaded)
    assert tested.passed, str(tested)
    assert [policy.name for policy in tested.left_out] == unknown
    judge = judge_of(files_of(folder), NAMES.prefix, tuple(("/", *entry) for entry in died.types.items()))
    assert judge.judge(event_of(letter)) == outcome_of(decision)
    assert [policy.name for policy in judge.left_out("/", died.queue)] == unknown


def unjudged(loaded: LoadedPolicies, died: Died) -> list[str]:
    """Policies for one type that would hold if the queue were of it; none where its type is known."""
    typed = {policy.name for policy in loaded.policies.policies if policy.apply_to != "queues"}
    names = []
    for kind in TYPES if died.queue_type is None else ():
        held = attending(loaded, {died.queue: kind})._decider.in_force.policy_of(died.queue, died.reason)
        names += [name for name in (held.names if held is not None else ()) if name in typed]
    return names


def needed(loaded: LoadedPolicies, died: Died) -> set[Resource | None]:
    """What the router needs of the broker for dead letters of the queue, where a policy names it exactly."""
    named = [
        policy for policy in loaded.policies.policies if policy.selector == Selector(SelectorKind.QUEUE, died.queue)
    ]
    router, resources = attending(loaded, died.types), set()
    for reason in {"rejected", *(reason for policy in named for reason in policy.on)} if named else ():
        last = replace(died, reason=reason, attempts=1_000_000)
        truth = router._decider.in_force.policy_of(died.queue, reason)
        letter = letter_of(last, truth)
        decision = decide(letter, truth, 0, 0.0)
        if truth is not None and isinstance(decision, DeadLetter):
            record = publication.record_of(letter, decision, CONTENT, policy=truth.policy, revision="")
            resources.add(resource_of(publication.to_target(decision, letter, record, ()), truth))
    return resources


# -- each surface that went its own way -----------------------------------------------------------------------------


def write_test(folder: Path, letter: str) -> None:
    (folder / "p.test.yaml").write_text(
        f"version: 1\ntests: [{{letter: {{queue: orders{letter}}}, expect: {{decision: retry}}}}]\n", encoding="utf-8"
    )


def test_policy_test_says_what_it_could_not_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, TYPED)
    write_test(tmp_path, "")
    with pytest.raises(SystemExit) as ended:
        main(["policy", "test", str(tmp_path)])
    assert not ended.value.code
    errors = capsys.readouterr().err
    assert f"{tmp_path}/p.test.yaml:2: rejected at orders: the queue's type is not said, so not judged:" in errors
    assert (
        f"policy typed ({tmp_path}/p.yaml:1) is for quorum queues only; write queue-type: quorum or classic" in errors
    )
    write_test(tmp_path, ", queue-type: quroum")
    with pytest.raises(PolicyErrors, match='did you mean "quorum"'):
        run_tests(tmp_path)


def test_lint_reads_a_policy_for_a_type_where_it_is_in_force(tmp_path: Path) -> None:
    guarded = [{**TYPED[0], "definition": {"message-ttl": "1m"}}]
    loaded = written(tmp_path, guarded, attachments=[{"queue": "orders", "mode": "guard"}])
    assert [finding.code for finding in loaded.warnings] == []
    apart: list[dict[str, Any]] = [
        {"name": kind, "match": "#", "apply-to": f"{kind}_queues", "inherit": False, "definition": {"max-redrives": at}}
        for at, kind in enumerate(TYPES, 1)
    ]
    assert [finding.code for finding in written(tmp_path, apart).warnings] == []
    assert [finding.code for finding in written(tmp_path, [{**apart[0], "priority": 1}, TYPED[1]]).warnings] == []
