"""What the chart renders, played: each variation of ci that needs nothing but pods, a broker, ConfigMaps and Secrets.

Not played, because a cluster obeys them: Services, NetworkPolicies, disruption budgets, spread and node selection, pull
secrets, KEDA's and the Prometheus operator's objects. tests/deploy/test_chart.py holds those of Kubernetes to its
schemas; docs/operations.md says so.
"""

import itertools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.chart import VARIATIONS, environment, of_kind, rendered, values_of
from tests.image.pods import Objects, Pod, keep_up
from tests.support.bulk import INBOX
from tests.support.certificates import Authority
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.receiver import Receiver
from tests.support.vhost import Vhost
from tools import brokers
from tools.brokers.elsewhere import GivenNode
from tools.containers import stand_ins
from tools.containers.engine import Engine

NETWORK: Final = "dlx-router-chart"
BROKER: Final = "dlx-router-chart-rabbit"
NAMED: Final = "rabbit.example.com"
TLS: Final = """
listeners.ssl.default = 5671
ssl_options.cacertfile = /tls/ca.pem
ssl_options.certfile = /tls/{name}.pem
ssl_options.keyfile = /tls/{name}.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""
POLICIES: Final = """
version: 1
policies:
  - {name: orders, match: "orders.#", definition: {max-delivery-attempts: ATTEMPTS, redelivery-delay: 100ms}}
"""
ANN: Final = "0123456789abcdef" * 2
TOKENS: Final = f"tokens:\n  - {{name: ann, token: {ANN}, role: viewer}}\n"
WEBHOOKS: Final = """
webhooks:
  - {name: chat, url-file: /etc/dlx-router/webhooks/url, format: slack, allow-addresses: [0.0.0.0/0]}
"""
ROUTERS: Final = [name for name in VARIATIONS if name not in {"pipeline", "observe"}]  # these have tests of their own
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "own", "authority")


@pytest.fixture(scope="module")
def broker(engine: Engine, authority: Authority) -> Iterator[GivenNode]:
    """In the network of the pods, as `rabbit` and by TLS as rabbit.example.com; from here by published ports."""
    if not engine.is_podman:
        pytest.skip("pods are played by podman")
    stand_ins.provide(engine, stand_ins.PYTHON, stand_ins.BROKER)
    shown = authority.issue(NAMED)
    folder = shown.certificate.parent
    (folder / "tls.conf").write_text(TLS.format(name=NAMED), encoding="utf-8")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    amqp, management = brokers.free_port(), brokers.free_port()
    engine.remove(BROKER)
    engine.tried("network", "create", NETWORK)
    published = ["--publish", f"127.0.0.1:{amqp}:5672", "--publish", f"127.0.0.1:{management}:15672"]
    named = ["--network", NETWORK, "--network-alias", "rabbit", "--network-alias", NAMED, "--hostname", "rabbit"]
    mounted = ["--volume", f"{folder}:/tls:ro", "--volume", f"{folder}/tls.conf:/etc/rabbitmq/conf.d/tls.conf:ro"]
    engine.run("run", "--detach", "--pull=never", "--name", BROKER, *named, *published, *mounted, stand_ins.BROKER)
    try:
        yield eventually(lambda: _given_node(amqp, management), within=120, every=0.5)
    finally:
        engine.remove(BROKER)
        engine.tried("network", "rm", "--force", NETWORK)


def _given_node(amqp: int, management: int) -> GivenNode:
    """AssertionError while it does not answer."""
    try:
        return GivenNode(f"amqp://guest:guest@127.0.0.1:{amqp}/", f"http://guest:guest@127.0.0.1:{management}")
    except brokers.BrokerError as error:
        raise AssertionError(error) from error


@pytest.fixture(scope="module")
def gateway(engine: Engine, broker: GivenNode) -> str:
    """This machine, as pods see it."""
    networks = json.loads(engine.run("network", "inspect", NETWORK))
    return str(networks[0]["subnets"][0]["gateway"])


@pytest.fixture
def chat(gateway: str) -> Iterator[Receiver]:
    """Where the webhooks of pods lead."""
    with Receiver(address=gateway) as receiver:
        yield receiver


Given = Callable[[dict[str, Any]], Objects]


@pytest.fixture
def given(vhost: Vhost, authority: Authority, chat: Receiver) -> Given:
    """given(values) → what the chart wants to find in its namespace."""
    return lambda values: _given(vhost, authority, values, chat.url(host=chat.address))


@pytest.fixture
def play(engine: Engine, router_image: str, given: Given, tmp_path: Path) -> Iterator[Callable[..., Pod]]:
    """play(variation, **more) → a pod of the Deployment that is ready; `more` replaces values of the variation."""
    pods: list[Pod] = []

    def begin(variation: str, **more: Any) -> Pod:
        values = values_of(variation) | more
        objects = rendered(_at_hand(values))
        (deployment,) = of_kind(objects, "Deployment")
        folder = tmp_path / f"pod-{len(pods)}"
        folder.mkdir()
        template = deployment["spec"]["template"]
        pod = Pod(engine, template, [*objects, *given(values)], folder, f"dlx-router-pod-{next(_numbers)}")
        pods.append(pod)
        pod.play(NETWORK, router_image)
        pod.await_ready()
        return pod

    yield begin
    for pod in pods:
        pod.close()


def _at_hand(values: dict[str, Any]) -> dict[str, Any]:
    """With policies of the test; some letters fast."""
    files = {"orders.yaml": POLICIES.replace("ATTEMPTS", "2")}
    return values if "policies" in values else {**values, "policies": {"files": files}}


def _given(vhost: Vhost, authority: Authority, values: dict[str, Any], chat: str) -> Objects:
    scheme, host = ("amqps", f"{NAMED}:5671") if "tls" in values else ("amqp", "rabbit:5672")
    amqp = f"{scheme}://guest:guest@{host}/{vhost.quoted}"
    mine = authority.issue("router")
    contents = {
        "rabbit": {"amqp-url": amqp, "url": amqp},
        "rabbit-management": {"management-url": "http://guest:guest@rabbit:15672"},
        "rabbit-tls": {
            "ca.crt": authority.certificate.read_text(),
            "tls.crt": mine.certificate.read_text(),
            "tls.key": mine.key.read_text(),
        },
        "provenance": {"provenance-key": "0123456789abcdef" * 4},
        "tokens": {"tokens.yaml": TOKENS, "token": ANN},
        "sessions": {"console-secret": "fedcba9876543210" * 4},
        "webhooks": {"webhooks.yaml": WEBHOOKS, "url": chat},
    }
    configs = {
        "our-policies": {"orders.yaml": POLICIES.replace("ATTEMPTS", "2")},
        "collector": {"endpoint": "http://127.0.0.1:4318"},
    }
    secret = [{"kind": "Secret", "metadata": {"name": name}, "stringData": data} for name, data in contents.items()]
    config = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        for name, data in configs.items()
    ]
    return [*secret, *config]


def _die(amqp: Client, body: str, times: int = 2, queue: str = "orders.new") -> None:
    amqp.queue(queue, dead_letter_exchange=INBOX)
    amqp.publish(body, key=queue)
    for _ in range(times):
        amqp.fail(queue)


@pytest.mark.parametrize("variation", ROUTERS)
def test_each_variation_is_ready_by_its_own_probes_and_routes(
    variation: str, play: Callable[..., Pod], amqp: Client
) -> None:
    pod = play(variation)
    _has_no_rights(pod)
    _reads_secrets_as_files(pod)
    _die(amqp, "a")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b"a"


def _has_no_rights(pod: Pod) -> None:
    lines = dict(line.split(":", 1) for line in pod.within("cat", "/proc/1/status").splitlines() if ":" in line)
    # with one container in a pod, PID 1 is the router
    assert lines["Uid"].split()[0] == "10001"
    assert {lines[name].split()[0] for name in ("CapEff", "CapBnd", "CapPrm")} == {"0" * 16}
    assert lines["NoNewPrivs"].split()[0] == "1"
    assert lines["Seccomp"].split()[0] == "2", "RuntimeDefault: a filter"
    assert pod.memory_limit == 512 << 20
    for path in ("/x", "/policies/x", "/etc/dlx-router/amqp/x"):
        with pytest.raises(Exception, match="Read-only file system"):
            pod.within("touch", path)
    pod.within("touch", "/tmp/x", "/var/lib/dlx-router/x")


def _reads_secrets_as_files(pod: Pod) -> None:
    variables = pod.within("env")
    assert "guest" not in variables
    for name, value in environment(pod.spec).items():
        if name.endswith("_FILE"):
            assert pod.within("cat", value).strip()


def test_observing_decides_about_copies_and_moves_nothing(play: Callable[..., Pod], amqp: Client) -> None:
    pod = play("observe")
    _has_no_rights(pod)
    assert "observing" in pod.ask("/readyz")[1]
    amqp.queue("theirs")
    amqp.bind("theirs", amqp.exchange("dlx", "topic"), "#")
    amqp.channel.exchange_bind("dlx-router.observe", "dlx", "#")
    amqp.queue("orders.new", dead_letter_exchange="dlx")
    amqp.publish("a", key="orders.new")
    amqp.fail("orders.new")
    eventually(lambda: _counted(pod, r'decisions_total\{.*action="retry".*\}') == 1)
    assert consistently(lambda: amqp.depth("theirs") == 1 and amqp.depth("orders.new") == 0)


def _counted(pod: Pod, series: str) -> float:
    values = re.findall(rf"^dlx_router_{series} (\S+)$", pod.ask("/metrics")[1], re.MULTILINE)
    return sum(map(float, values))


def test_a_configmap_that_changes_is_in_force_without_a_new_pod(play: Callable[..., Pod], amqp: Client) -> None:
    pod, orders = play("minimal"), POLICIES.replace("ATTEMPTS", "1")
    keep_up(pod.volumes["policies"], {"orders.yaml": "version: 1\npolicies: [{nome: x}]\n"})
    eventually(lambda: _reloads(pod, "failure") == 1, within=20, every=0.2)
    assert "orders.yaml" in pod.ask("/readyz")[1]
    assert pod.probe("readiness"), "the old revision is in force"
    _die(amqp, "a")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b"a"
    keep_up(pod.volumes["policies"], {"orders.yaml": orders, "mail.yaml": orders.replace("orders", "mail")})
    eventually(lambda: _reloads(pod, "success") == 1, within=20, every=0.2)
    _die(amqp, "b", times=1)
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b"b"
    keep_up(pod.volumes["policies"], {"orders.yaml": orders})
    eventually(lambda: _reloads(pod, "success") == 2, within=20, every=0.2)
    assert "mail" not in pod.within("ls", "/policies")


def _reloads(pod: Pod, result: str) -> float:
    return _counted(pod, f'reloads_total{{.*result="{result}".*}}')


def test_a_router_that_stands_still_fails_its_probe_and_one_that_is_killed_begins_again(
    play: Callable[..., Pod], amqp: Client
) -> None:
    pod = play("minimal")
    os.kill(pod.pid, signal.SIGSTOP)
    assert not pod.probe("liveness")
    assert not pod.probe("readiness")
    os.kill(pod.pid, signal.SIGKILL)  # by kubelet, after some more
    eventually(lambda: pod.restarts == 1, within=30, every=0.2)
    pod.await_ready()
    _die(amqp, "a")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b"a"


def test_a_deleted_pod_ends_within_its_grace_and_another_goes_on(play: Callable[..., Pod], amqp: Client) -> None:
    first, second = play("replicas"), play("replicas")
    _die(amqp, "a")
    amqp.take("DLQ.orders.new", within=20)
    assert first.delete() == 0, first.output[-2000:]
    assert second.probe("readiness")
    _die(amqp, "b")
    assert amqp.await_message("DLQ.orders.new", within=20).ack().body == b"b"


def test_the_pipeline_archives_the_journal_on_a_read_only_root(
    play: Callable[..., Pod], pipeline_image: str, given: Given, amqp: Client, tmp_path: Path
) -> None:
    router = play("minimal")
    _die(amqp, "a")
    amqp.take("DLQ.orders.new", within=20)
    pod = _job(router.engine, given, tmp_path / "pipeline")
    try:
        pod.play(NETWORK, pipeline_image)
        eventually(lambda: not pod.state["Running"], within=240, every=1)
        assert pod.state["ExitCode"] == 0, pod.output[-4000:]
        assert [*pod.volumes["archive"].rglob("*.parquet")]
    finally:
        pod.close()


def _job(engine: Engine, given: Given, folder: Path) -> Pod:
    """The CronJob's pod, once: podman would begin it again for ever."""
    values = values_of("pipeline")
    objects = rendered(values)
    (job,) = of_kind(objects, "CronJob")
    pod_template = job["spec"]["jobTemplate"]["spec"]["template"]
    folder.mkdir()
    template = {"metadata": pod_template["metadata"], "spec": {**pod_template["spec"], "restartPolicy": "Never"}}
    return Pod(engine, template, [*objects, *given(values)], folder, "dlx-router-pod-pipeline")
