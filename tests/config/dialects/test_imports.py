"""`policy import`: what four systems say, in our language, by the examples of their documents."""
# ruff: noqa: E501 - a row of a table is read as one line

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlx_router.cli.policy_import import _READERS, Origin, import_
from dlx_router.config.dialects.import_result import Carried, ImportRefused, as_yaml
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.backoff import wait_ms
from dlx_router.core.policy import Effective
from tests.core.core_samples import law

Import = Callable[[str, str], Callable[..., Effective]]


def run(path: Path, origin: Origin) -> int:
    try:
        import_(path, origin)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def artemis(*settings: str) -> str:
    return f"""<?xml version="1.0"?><configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<address-settings>{"".join(settings)}</address-settings></core></configuration>"""


def setting(match: str, **keys: object) -> str:
    inner = "".join(f"<{key.replace('_', '-')}>{value}</{key.replace('_', '-')}>" for key, value in keys.items())
    return f'<address-setting match="{match}">{inner}</address-setting>'


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    def go(origin: str, text: str) -> Callable[..., Effective]:
        source, folder = tmp_path / "source", tmp_path / "policies"
        folder.mkdir(exist_ok=True)
        source.write_text(text, encoding="utf-8")
        assert run(source, Origin(origin)) == 0
        printed = capsys.readouterr()
        (folder / "p.yaml").write_text(printed.out, encoding="utf-8")
        policies = load_policies(folder).policies

        def effective(queue: str, reason: str = "rejected", vhost: str = "/") -> Effective:
            policy = policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=None)
            assert policy is not None, printed.out
            return policy

        effective.report = printed.err  # type: ignore[attr-defined]  # the output, beside it
        return effective

    return go


def report(policy_of: Any) -> str:
    return str(policy_of.report)


EXCHANGES = st.sampled_from(["", "dlx", "amq.fanout", "dlx-router.inbox", "dlx-router.\ninbox", "\rdlx-router.return"])
KEYS_ = st.sampled_from(["dead", "{queue}", "dlx-router.state", "dlx-\nrouter.state", "orders", "orders.dead"])
PATTERNS_ = st.sampled_from(["^orders", "orders\\\\.dead", ".*", "^dlx-router\\\\.", "^a.b$", ""])
DEFINITIONS = st.fixed_dictionaries(
    {}, optional={"dead-letter-exchange": EXCHANGES, "dead-letter-routing-key": KEYS_, "message-ttl": st.just(1000)}
)
BROKERS = st.fixed_dictionaries(
    {
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["a", "b", "dlx-router.own"]),
                    "vhost": st.sampled_from(["/", "x"]),
                    "pattern": PATTERNS_,
                    "apply-to": st.sampled_from(["all", "queues", "classic_queues", "quorum_queues", "exchanges"]),
                    "priority": st.integers(0, 2),
                    "definition": DEFINITIONS,
                }
            ),
            max_size=4,
        ),
        "queues": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["orders", "orders.dead", "dead", "dlx-router.inbox"]),
                    "vhost": st.just("/"),
                    "arguments": DEFINITIONS.map(
                        lambda definition: {f"x-{key}": value for key, value in definition.items()}
                    ),
                }
            ),
            max_size=4,
        ),
    }
)


@settings(parent=law, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BROKERS)
def test_what_an_import_writes_passes_lint_and_what_it_cannot_carry_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broker: dict[str, Any]
) -> None:
    source, folder = tmp_path / "broker.json", tmp_path / "law"
    folder.mkdir(exist_ok=True)
    source.write_text(json.dumps(broker), encoding="utf-8")
    code, printed = run(source, Origin("rabbitmq")), capsys.readouterr()
    assert code == 0, printed.err
    (folder / "p.yaml").write_text(printed.out, encoding="utf-8")
    load_policies(folder)  # raises what `policy lint` would refuse


def test_an_exchange_of_the_router_is_not_carried_over_and_the_report_says_so(imported: Import, tmp_path: Path) -> None:
    definition = {"dead-letter-exchange": "dlx-router.inbox", "max-length": 5}
    mine = {"name": "mine", "pattern": "^orders", "apply-to": "queues", "definition": definition}
    other = {"name": "other", "pattern": "^mail", "apply-to": "queues", "definition": {"dead-letter-exchange": "dlx"}}
    policy_of = imported("rabbitmq", json.dumps({"policies": [mine, other]}))
    assert "policy mine: would be an error (DLX116)" in report(policy_of)
    assert policy_of("mail").dead_letter_exchange == "dlx"


def test_artemis_delays_double_up_to_the_longest(imported: Import) -> None:
    keys = {"redelivery_delay": 5000, "redelivery_delay_multiplier": 2, "max_redelivery_delay": 15000}
    policy = imported("artemis", artemis(setting("exampleQueue", **keys)))("exampleQueue")
    waits = [wait_ms(policy, n, 0.0) for n in (1, 2, 3)]
    assert waits == [5000, 10000, 15000]


def test_artemis_jitter_is_the_documents(imported: Import) -> None:
    keys = {
        "redelivery_delay": 1000,
        "redelivery_delay_multiplier": 1,
        "max_redelivery_delay": 15000,
        "redelivery_collision_avoidance_factor": 0.5,
    }
    policy = imported("artemis", artemis(setting("q", **keys)))("q")
    waits = [wait_ms(policy, 1, draw) for draw in (-0.25, 0.75, -0.05)]
    assert waits == [875, 1375, 975]


def test_artemis_dead_letter_address_after_three_attempts(imported: Import) -> None:
    policy = imported(
        "artemis", artemis(setting("exampleQueue", dead_letter_address="deadLetterAddress", max_delivery_attempts=3))
    )("exampleQueue")
    assert (policy.max_attempts, policy.dead_letter_exchange, policy.auto_create) == (3, "deadLetterAddress", False)


def test_artemis_global_address_and_one_without_limit(imported: Import) -> None:
    policy_of = imported(
        "artemis",
        artemis(
            setting("#", dead_letter_address="DLA", max_delivery_attempts=3), setting("hot", max_delivery_attempts=-1)
        ),
    )
    assert (policy_of("cold").max_attempts, policy_of("hot").max_attempts) == (3, -1)
    assert policy_of("hot").dead_letter_exchange == "DLA"


def test_artemis_creates_queues_with_prefix_and_suffix(imported: Import) -> None:
    keys = {
        "dead_letter_address": "DLA",
        "max_delivery_attempts": 3,
        "auto_create_dead_letter_resources": "true",
        "dead_letter_queue_prefix": "",
        "dead_letter_queue_suffix": ".DLQ",
    }
    policy = imported("artemis", artemis(setting("#", **keys)))("stocks")
    assert (policy.auto_create, policy.dlq_prefix, policy.dlq_suffix) == (True, "", ".DLQ")


def test_artemis_without_an_address_would_delete_and_ours_keeps_and_says_so(imported: Import) -> None:
    policy_of = imported("artemis", artemis(setting("q", max_delivery_attempts=3, max_redelivery_records=5)))
    assert (policy_of("q").auto_create, policy_of("q").discard) == (True, False)
    assert "Artemis would delete" in report(policy_of)
    assert "max-redelivery-records: is not needed" in report(policy_of)


def test_artemis_expiry_address_is_for_expired_letters_only(imported: Import) -> None:
    policy_of = imported("artemis", artemis(setting("q", dead_letter_address="D", expiry_address="E")))
    assert (policy_of("q").dead_letter_exchange, policy_of("q", "expired").dead_letter_exchange) == ("D", "E")
    assert "expiry-address: its queue; expired messages go to exchange E" in report(policy_of)


@pytest.mark.parametrize("match", ["#", "exampleQueue"])
def test_artemis_expired_letters_go_to_their_address_whatever_is_created_for_rejected_ones(
    imported: Import, match: str
) -> None:
    creates = {"dead_letter_address": "DLA", "auto_create_dead_letter_resources": "true"}
    both = [setting(match, **creates), setting("exampleQueue", expiry_address="E")]
    policy_of = imported(
        "artemis", artemis(*(both if match == "#" else [setting(match, **creates, expiry_address="E")]))
    )
    rejected, expired = policy_of("exampleQueue"), policy_of("exampleQueue", "expired")
    assert (rejected.dead_letter_exchange, rejected.auto_create) == ("DLA", True)
    assert (expired.dead_letter_exchange, expired.auto_create) == ("E", False)


def test_artemis_queues_of_expired_messages_are_not_created_and_the_report_says_how(imported: Import) -> None:
    policy_of = imported("artemis", artemis(setting("q", expiry_address="E", auto_create_expiry_resources="true")))
    assert "auto-create-expiry-resources: write auto-create-dead-letter-resources: true" in report(policy_of)


def test_artemis_without_an_address_and_nothing_created_letters_are_parked_and_the_report_says_so(
    imported: Import,
) -> None:
    keys = {"max_delivery_attempts": 3, "auto_create_dead_letter_resources": "false"}
    policy_of = imported("artemis", artemis(setting("q", **keys)))
    assert not policy_of("q").auto_create
    assert "letters are parked (unroutable)" in report(policy_of)
    assert "kept in an auto-created DLQ; " not in report(policy_of)


def test_artemis_an_empty_address_deletes_and_the_report_says_so(imported: Import) -> None:
    both = [setting("#", dead_letter_address="DLA"), setting("q", dead_letter_address="", max_delivery_attempts=3)]
    policy_of = imported("artemis", artemis(*both, setting("s", expiry_address="")))
    assert "address-setting q: an empty dead-letter-address: Artemis would delete" in report(policy_of)
    assert "address-setting s, expiry-address: is empty: Artemis would delete expired messages" in report(policy_of)
    assert policy_of("q").dead_letter_exchange == "DLA", "here the wider one holds"


@pytest.mark.parametrize("creates", [{}, {"auto_create_dead_letter_resources": "true"}], ids=["by hand", "created"])
def test_artemis_what_has_to_be_declared_behind_an_address_is_told(imported: Import, creates: dict[str, str]) -> None:
    policy_of = imported(
        "artemis", artemis(setting("q", dead_letter_address="DLA", max_delivery_attempts=3, **creates))
    )
    told = "address-setting q, dead-letter-address: its queue; dead letters go to exchange DLA" in report(policy_of)
    assert told is not bool(creates)
    assert policy_of("q").auto_create == bool(creates)


def wildcards(**keys: str) -> str:
    inner = "".join(f"<{key.replace('_', '-')}>{value}</{key.replace('_', '-')}>" for key, value in keys.items())
    return f"<wildcard-addresses>{inner}</wildcard-addresses>"


def test_artemis_matches_that_ours_cannot_say_are_reported(imported: Import) -> None:
    attempts = {"orders.*": 2, "a#": 4, "jobs/import": 7}
    settings = [setting(match, max_delivery_attempts=count) for match, count in attempts.items()]
    usual = wildcards(routing_enabled="true", delimiter=".", any_words="#", single_word="*")
    policy_of = imported("artemis", artemis(*settings).replace("</core>", f"{usual}</core>"))
    assert (policy_of("orders.eu").max_attempts, policy_of("jobs/import").max_attempts) == (2, 7)
    assert "address-setting a#: mixes a word with a wildcard" in report(policy_of)


@pytest.mark.parametrize("origin", ["sqs", "yandex"])
@pytest.mark.parametrize("count", [5, "5"])
def test_a_redrive_policy_with_number_or_text(origin: str, count: int | str, imported: Import) -> None:
    redrive = json.dumps({"deadLetterTargetArn": "arn:aws:sqs:eu:1:failed", "maxReceiveCount": count})
    attributes = {
        "Attributes": {
            "QueueArn": "arn:aws:sqs:eu:1:orders",
            "RedrivePolicy": redrive,
            "VisibilityTimeout": "30",
            "DelaySeconds": "0",
        }
    }
    policy_of = imported(origin, json.dumps(attributes))
    policy = policy_of("orders")
    assert (policy.max_attempts, policy.delay_ms, policy.dead_letter_exchange) == (5, 30_000, "")
    assert policy.routing_key is not None
    assert policy.routing_key.text == "failed"
    assert "DelaySeconds: delays every message" in report(policy_of)


def test_a_fifo_queue_stays_one(imported: Import) -> None:
    attributes = {"QueueName": "a.fifo", "RedrivePolicy": {"deadLetterTargetArn": "x:dead.fifo", "maxReceiveCount": 3}}
    assert imported("yandex", json.dumps(attributes))("a.fifo").settings["ordering"].value == "fifo"


def test_emq_carries_its_own_headers(imported: Import) -> None:
    policy = imported("emq", '{"queueName": "q", "redrivePolicy": {"dlqName": "dead", "maxReceiveTime": 7}}')("q")
    assert (policy.max_attempts, policy.aliases) == (7, ("emq",))


def test_rabbitmq_policies_win_alone_and_try_nothing_again(imported: Import) -> None:
    definitions = {"policies": [
        {"vhost": "/", "name": "DLX", "pattern": ".*", "apply-to": "queues", "definition": {"dead-letter-exchange": "my-dlx"}, "priority": 7},
        {"vhost": "/", "name": "less", "pattern": "^a", "apply-to": "queues", "definition": {"message-ttl": 5, "ha-mode": "all"}, "priority": 1},
        {"vhost": "/", "name": "x", "pattern": ".*", "apply-to": "exchanges", "definition": {"alternate-exchange": "y"}, "priority": 0},
    ], "queues": [{"name": "argued", "vhost": "/", "durable": True, "arguments": {"x-dead-letter-exchange": "some.exchange.name", "x-dead-letter-routing-key": "bar"}}]}  # fmt: skip
    policy_of = imported("rabbitmq", json.dumps(definitions))
    policy = policy_of("a")
    assert (policy.dead_letter_exchange, policy.retry_on) == ("my-dlx", frozenset())
    assert "message-ttl" not in policy.settings, "one policy wins, in RabbitMQ"
    argued = policy_of("argued")
    assert (argued.dead_letter_exchange, argued.routing_key.text if argued.routing_key else "") == (
        "some.exchange.name",
        "bar",
    )
    assert all(
        words in report(policy_of) for words in ("DLX201", "ha-mode: is not about dead letters", "applies to exchanges")
    )


@pytest.mark.parametrize("key", ["max-length", "message-ttl", "expires", "delivery-limit"])
def test_rabbitmq_policies_without_a_dead_letter_exchange_try_nothing_again_either(imported: Import, key: str) -> None:
    bounded = {"vhost": "/", "name": "bounded", "pattern": "^cache$", "apply-to": "queues", "definition": {key: 1000}}
    policy_of = imported("rabbitmq", json.dumps({"policies": [bounded]}))
    policy = policy_of("cache")
    assert (policy.retry_on, policy.auto_create, policy.settings[key].value) == (frozenset(), True, 1000)
    assert "policy bounded: no dead-letter-exchange" in report(policy_of)
    assert "kept in DLQ.<queue>; set discard: true" in report(policy_of)


@pytest.mark.parametrize(
    "named", [{"QueueArn": "arn:aws:sqs:eu:1:orders"}, {"QueueUrl": "https://sqs/1/orders"}, {"QueueName": "orders"}]
)
def test_one_queue_without_a_redrive_policy_is_said_to_have_none(named: dict[str, str], imported: Import) -> None:
    text = json.dumps({**named, "VisibilityTimeout": "30"})
    assert "queue orders: has no RedrivePolicy: nothing dies there" in report(imported("sqs", text))


BAD = [
    ("rabbitmq", "{", "not JSON"), ("rabbitmq", "[]", "expected an object"), ("rabbitmq", "{}", "no policies and no queues"),
    ("rabbitmq", '{"policies": 1}', "expected a list"), ("rabbitmq", "[" * 100_000, "JSON|nested"), ("rabbitmq", '{"policies": [{"definition": {"message-ttl": -5}, "pattern": "x"}]}', "message-ttl"),
    ("artemis", "<a>", "not XML"), ("artemis", "<a/>", "no address-setting"),
    ("artemis", '<!DOCTYPE l [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><l>&c;</l>', "document type or entity"),
    ("artemis", '<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><address-setting match="&x;"/>', "document type or entity"),
    ("artemis", "<a>" * 1000, "nested deeper"), ("artemis", artemis(setting("q", redelivery_delay="soon")), "is no number"),
    ("artemis", artemis(wildcards(delimiter="/"), setting("q")), "only the usual . is read"),
    ("sqs", '{"AWSTemplateFormatVersion": "2010-09-09", "Resources": {}}', "a CloudFormation file; --from sqs reads what `aws sqs"),
    ("sqs", "Resources: {Q: {Type: AWS::SQS::Queue}}", "a CloudFormation file; --from sqs reads what `aws sqs"),
    ("sqs", 'resource "aws_sqs_queue" "q" {}', "a Terraform file; --from sqs reads what `aws sqs"),
    ("yandex", '{"version": 4, "terraform_version": "1.9.0"}', "a Terraform file; --from yandex reads what `aws sqs"),
    ("emq", "nonsense", "--from emq reads redrive policies"), ("artemis", "nonsense", "--from artemis reads the broker.xml"),
    ("rabbitmq", "<a/>", "--from rabbitmq reads what `rabbitmqctl"),
    ("artemis", '<a xmlns:xi="x"><xi:include href="more.xml"/></a>', "only xi:include of more.xml; import that file"),
    ("sqs", '{"QueueName": "q", "RedrivePolicy": {"maxReceiveCount": 0, "deadLetterTargetArn": "d"}}', "is not 1..1000"),
    ("sqs", '{"QueueName": "q", "RedrivePolicy": {"maxReceiveCount": 1001, "deadLetterTargetArn": "d"}}', "is not 1..1000"),
    ("sqs", '{"QueueName": "q", "RedrivePolicy": {"maxReceiveCount": 5}}', "without deadLetterTargetArn"),
    ("sqs", '{"QueueName": "q.fifo", "RedrivePolicy": {"maxReceiveCount": 5, "deadLetterTargetArn": "d"}}', "do not mix"),
    ("sqs", '{"RedrivePolicy": "{}"}', "neither QueueArn"), ("yandex", '{"QueueName": "q", "RedrivePolicy": "{"}', "not JSON"),
    ("emq", '{"queueName": "q", "redrivePolicy": {"dlqName": "d", "maxReceiveTime": 101}}', "is not 1..100"),
    ("emq", '{"queueName": "q", "redrivePolicy": {"dlqName": "q", "maxReceiveTime": 1}}', "its own DLQ"),
    ("emq", '[{"queueName": "q", "redrivePolicy": {"dlqName": "d", "maxReceiveTime": 1}}, {"queueName": "d", "redrivePolicy": {"dlqName": "e", "maxReceiveTime": 1}}]', "EMQ forbids both"),
    ("emq", '[{"queueName": "q", "redrivePolicy": {"dlqName": "d", "maxReceiveTime": 1}}, {"queueName": "q", "redrivePolicy": {"dlqName": "e", "maxReceiveTime": 1}}]', "two redrive policies"),
]  # fmt: skip


@pytest.mark.parametrize(("origin", "text", "why"), BAD, ids=[f"{row[0]}-{row[2]}" for row in BAD])
def test_bad_input_is_said_and_nothing_is_written(
    origin: str, text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text(text, encoding="utf-8")
    assert run(tmp_path / "source", Origin(origin)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert any(words in printed.err for words in why.split("|"))
    assert "Traceback" not in printed.err


LIMIT = {"pattern": "^orders", "apply-to": "queues", "definition": {"max-length": 10}, "priority": 0}
OPERATOR = {"component": "operator_policy", "name": "lim", "value": LIMIT}


@pytest.mark.parametrize("vhost", [{}, {"vhost": "shop"}], ids=["of one vhost", "of all"])
def test_what_an_export_holds_besides_policies_is_reported(imported: Import, vhost: dict[str, str]) -> None:
    limits = {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 9}}
    shovel = {"component": "shovel", "name": "s", "value": {}}
    parameters = [part | vhost for part in (OPERATOR, limits, shovel)]
    of = f" of vhost {vhost['vhost']}" if vhost else ""
    text = report(imported("rabbitmq", json.dumps({"policies": [], "parameters": parameters})))
    assert f"operator policy lim{of}: stays in RabbitMQ: it limits '^orders' (max-length 10)" in text
    assert f"limits{of}: stay in RabbitMQ; dead-letter queues and delay queues count for max-queues" in text
    assert f"shovel s{of}: is no policy; keep it in RabbitMQ" in text


def test_an_included_file_is_reported(imported: Import) -> None:
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="more.xml"/></core>'
    text = artemis(setting("q", max_delivery_attempts=3)).replace("</core>", include)
    assert "xi:include more.xml: is not read; import it too" in report(imported("artemis", text))


def definitions(*values: Any) -> str:
    policies = [
        {"name": f"p{at}", "pattern": "^q", "definition": {"dead-letter-exchange": value, "message-ttl": 5}}
        for at, value in enumerate(values)
    ]
    return json.dumps({"policies": policies}, indent=1)


REJECTED = [
    ("rabbitmq", definitions("dlx", None), ":11: policy p1, dead-letter-exchange: null"),
    ("rabbitmq", definitions("dlx").replace("5", "true"), ":3: policy p0: message-ttl"),
    ("rabbitmq", definitions("x", "x" * 300), ":11: policy p1: dead-letter-exchange"),
    (
        "artemis",
        artemis(setting("a", max_delivery_attempts=1), "\n", setting("b", redelivery_delay_multiplier=0)),
        ":3: policy b: redelivery-delay-multiplier",
    ),
]


@pytest.mark.parametrize(("origin", "text", "words"), REJECTED, ids=[row[2] for row in REJECTED])
def test_a_rejected_value_names_its_policy_and_line(
    origin: str, text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text(text, encoding="utf-8")
    assert run(tmp_path / "source", Origin(origin)) == 1
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


JSON_ = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["", "dlx", "{queue}"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "pattern"]), inner, max_size=2),
    max_leaves=4,
)


@settings(parent=law, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_, key=st.sampled_from(["pattern", "priority", "vhost", "apply-to", "name", "definition"]))
def test_no_value_of_a_file_becomes_the_name_of_a_python_object(
    value: Any, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"name": "p", "pattern": "^q", "definition": {"dead-letter-exchange": value, "max-length": 5}}
    (tmp_path / "d.json").write_text(json.dumps({"policies": [policy, policy | {key: value}]}))
    assert run(tmp_path / "d.json", Origin("rabbitmq")) in {0, 1}
    assert not any(line.endswith((": None", ": True", ": False")) for line in capsys.readouterr().out.splitlines())


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nowhere", Origin.EMQ) == 2
    assert "cannot be read" in capsys.readouterr().err


def read(origin: str, data: bytes) -> Carried:
    out = Carried()
    _READERS[origin](data, out)
    return out


NAMES = st.text(min_size=1, max_size=30)


@given(NAMES, NAMES, st.integers(1, 100))
def test_whatever_queues_are_called_the_import_says_the_same_or_refuses(queue: str, dead: str, count: int) -> None:
    text = json.dumps({"queueName": queue, "redrivePolicy": {"dlqName": dead, "maxReceiveTime": count}})
    try:
        written = as_yaml(read("emq", text.encode()), "a\nb")
    except ImportRefused:
        assert queue == dead
        return
    assert f"queue: {json.dumps(queue)}" in written or f"queue: {queue}\n" in written


@given(st.binary(max_size=200), st.sampled_from(sorted(_READERS)))
def test_no_bytes_crash_a_reader(data: bytes, origin: str) -> None:
    with suppress(ImportRefused):
        read(origin, data)
