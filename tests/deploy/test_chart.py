"""The chart through the real Helm engine, its objects against three versions of Kubernetes."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from dlx_router import __version__
from dlx_router.config.environment.settings import unknown_variables
from dlx_router.console.app import PAGES
from tests.deploy.chart import CHART, VARIATIONS, environment, of_kind, pod_of, rendered, values_of
from tools.pages import reference
from tools.release.build import chart_version

KUBERNETES = ("1.27", "1.28", "1.32", "1.36")
MINIMAL = {"amqp": {"existingSecret": "rabbit"}}
OWN_SERIES = 'namespace="messaging",job="shop-dlx-router"'


@pytest.mark.parametrize("variation", VARIATIONS)
def test_lint_finds_nothing(variation: str) -> None:
    report = helm_python.lint(str(CHART), values_of(variation), strict=True)
    assert report["errors"] == []
    assert [
        message for message in report["messages"] if message["severity"] > 1
    ] == []  # 1 is what Helm recommends: an icon


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_object_is_valid(variation: str, version: str) -> None:
    for manifest in _of_kubernetes(rendered(values_of(variation))):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_pods_meet_the_restricted_standard(variation: str) -> None:
    for pod in _pods(rendered(values_of(variation))):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("variation", VARIATIONS)
def test_secrets_are_files_and_never_values(variation: str) -> None:
    for pod in _pods(rendered(values_of(variation))):
        for variable in pod["containers"][0]["env"]:
            assert "secretKeyRef" not in variable.get("valueFrom", {})
            is_public = variable["name"] == "DLX_ROUTER_CONSOLE_URL"  # settings refuse credentials in it
            assert is_public or "://" not in variable.get("value", "")


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_variable_is_a_setting_of_the_router(variation: str) -> None:
    for pod in _pods(rendered(values_of(variation))):
        assert unknown_variables(environment(pod)) == []


def test_without_a_secret_it_says_how_to_make_one() -> None:
    with pytest.raises(helm_python.HelmError, match="kubectl create secret generic"):
        rendered({})


def test_several_replicas_without_a_shared_key_are_refused() -> None:
    with pytest.raises(helm_python.HelmError, match=r"provenance\.existingSecret is empty"):
        rendered({**MINIMAL, "replicaCount": 2})


def test_one_router_without_a_shared_key_is_replaced_and_several_roll() -> None:
    (alone,), (several,) = (of_kind(rendered(values_of(name)), "Deployment") for name in ("minimal", "replicas"))
    assert alone["spec"]["strategy"] == {"type": "Recreate"}
    assert several["spec"]["strategy"]["type"] == "RollingUpdate"
    assert several["spec"]["replicas"] == 3


def test_several_replicas_have_a_disruption_budget_and_one_has_none() -> None:
    (budget,) = of_kind(rendered(values_of("replicas")), "PodDisruptionBudget")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "no router is ready while the broker is away"
    assert of_kind(rendered(MINIMAL), "PodDisruptionBudget") == []


def test_the_pipeline_judges_signatures_and_goes_where_routers_go() -> None:
    placed = {"nodeSelector": {"pool": "x"}, "tolerations": [{"operator": "Exists"}]}
    job = _pipeline({"provenance": {"existingSecret": "key"}, **placed})
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert environment(pod)["DLX_ROUTER_PROVENANCE_KEY_FILE"] == "/etc/dlx-router/provenance/key"
    mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted["provenance"] == "/etc/dlx-router/provenance"
    assert {
        "name": "provenance",
        "secret": {"secretName": "key", "items": [{"key": "provenance-key", "path": "key"}]},
    } in pod["volumes"]
    assert {name: pod[name] for name in placed} == placed
    assert "DLX_ROUTER_PROVENANCE_KEY_FILE" not in environment(
        _pipeline({})["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    )


def test_a_pipeline_of_several_vhosts_is_refused_unless_it_says_which() -> None:
    for vhosts in ("*", "a,b"):
        more = {"settings": {"vhosts": vhosts}, "management": {"existingSecret": "m"}}
        with pytest.raises(helm_python.HelmError, match="archives the journal of one vhost"):
            _pipeline(more)
        args = ["pipeline", "ingest", "--archive", "/archive", "--once", "--option", "vhost=a"]
        _pipeline({**more, "pipeline": {"args": args}})


PIPELINE = {"enabled": True, "archiveClaim": "archive"}


def _pipeline(more: dict[str, Any]) -> dict[str, Any]:
    (job,) = of_kind(rendered({**MINIMAL, **more, "pipeline": PIPELINE | more.get("pipeline", {})}), "CronJob")
    return job


def test_a_changed_configmap_reaches_the_running_router() -> None:
    (mount,) = [
        mount for mount in pod_of(rendered(MINIMAL))["containers"][0]["volumeMounts"] if mount["name"] == "policies"
    ]
    assert "subPath" not in mount, "a subPath is never updated"


def test_keda_looks_at_the_inbox_of_each_vhost_by_a_secret_that_exists() -> None:
    objects = rendered(values_of("keda"))
    (scaled,), (login,) = of_kind(objects, "ScaledObject"), of_kind(objects, "TriggerAuthentication")
    (deployment,) = of_kind(objects, "Deployment")
    assert scaled["spec"]["scaleTargetRef"] == {"name": deployment["metadata"]["name"]}
    assert "replicas" not in deployment["spec"], "an upgrade would undo what KEDA did"
    assert [trigger["metadata"]["vhostName"] for trigger in scaled["spec"]["triggers"]] == ["/", "shop"]
    for trigger in scaled["spec"]["triggers"]:
        assert (trigger["type"], trigger["metadata"]["queueName"]) == ("rabbitmq", "dlx-router.inbox")
        assert (trigger["metadata"]["mode"], trigger["metadata"]["value"]) == ("QueueLength", "20000")
        assert trigger["authenticationRef"] == {"name": login["metadata"]["name"]}
    assert login["spec"]["secretTargetRef"] == [{"parameter": "host", "name": "rabbit-reader", "key": "url"}]
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["maxReplicaCount"]) == (1, 4)
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert len(of_kind(objects, "PodDisruptionBudget")) == 1


def test_policies_in_values_arrive_as_they_were_written() -> None:
    text = "version: 1\npolicies: []  # nothing yet\n"
    (made,) = of_kind(rendered({**MINIMAL, "policies": {"files": {"orders.yaml": text}}}), "ConfigMap")
    assert made["data"]["orders.yaml"] == text


def test_the_drain_ends_before_kubernetes_kills() -> None:
    pod = pod_of(rendered(MINIMAL))
    assert int(environment(pod)["DLX_ROUTER_DRAIN_SECONDS"]) < pod["terminationGracePeriodSeconds"]


def test_alerts_are_the_tested_ones_with_runbooks_and_without_the_disabled() -> None:
    (made,) = of_kind(rendered(values_of("watched")), "PrometheusRule")
    rules = [rule for group in made["spec"]["groups"] for rule in group["rules"]]
    shipped = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    known = [rule for group in shipped["groups"] for rule in group["rules"]]
    plain = [rule["expr"].replace(f"{{{OWN_SERIES}}}", "").replace(f"{OWN_SERIES},", "") for rule in rules]
    assert {*plain} == {rule["expr"] for rule in known if rule.get("alert") != "DeadLetterRateHigh"}
    down = next(rule for rule in rules if rule.get("alert") == "RouterDown")
    assert down["annotations"]["runbook_url"] == "https://runbooks.example.com/dlx-router#routerdown"


def test_every_alert_leads_to_its_page_of_the_console_where_there_is_one() -> None:
    (made,) = of_kind(rendered(values_of("told")), "PrometheusRule")
    alerts = [rule for group in made["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    shipped = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    known = [rule for group in shipped["groups"] for rule in group["rules"] if "alert" in rule]
    urls = {rule["alert"]: rule["annotations"]["console_url"] for rule in alerts}
    begin, end = "{{ with $externalLabels.dlx_console }}{{ . }}", "{{ end }}"
    pages = {rule["alert"]: rule["annotations"]["console_url"].removeprefix(begin).removesuffix(end) for rule in known}
    assert urls == {name: f"https://dlx.example.com/at/north{page}" for name, page in pages.items()}
    assert {page[:1] for page in pages.values()} == {"/"}
    assert urls["BreakerOpen"].endswith("/letters?queue={{ $labels.queue | urlquery }}"), "for Prometheus to fill in"
    (plain,) = of_kind(rendered(values_of("watched")), "PrometheusRule")
    assert "console_url" not in str(plain)


def test_who_is_told_stands_in_a_secret_and_the_network_policy_lets_it_out() -> None:
    objects = rendered(values_of("told"))
    pod = pod_of(objects)
    assert environment(pod)["DLX_ROUTER_WEBHOOKS_FILE"] == "/etc/dlx-router/webhooks/webhooks.yaml"
    assert environment(pod)["DLX_ROUTER_CONSOLE_URL"] == "https://dlx.example.com/at/north/"
    assert {"name": "webhooks", "secret": {"secretName": "webhooks"}} in pod["volumes"]
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert 443 in {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}


def test_the_network_policy_lets_out_dns_and_the_broker_only() -> None:
    (made,) = of_kind(rendered(values_of("watched")), "NetworkPolicy")
    ports = {port["port"] for rule in made["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 5671, 5672, 15671, 15672, 9719}
    (replicas,) = [rule for rule in made["spec"]["egress"] if rule["ports"][0]["port"] == 9719]
    (deployment,) = of_kind(rendered(values_of("watched")), "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert replicas["to"] == [{"podSelector": {"matchLabels": selector}}], "to each other, and to nobody else"
    assert {"podSelector": {"matchLabels": selector}} in [
        peer for rule in made["spec"]["ingress"] for peer in rule["from"]
    ]


def test_an_ingress_shows_the_console_and_the_api_and_nothing_that_asks_for_no_token() -> None:
    (made,) = of_kind(rendered(values_of("console")), "Ingress")
    (rule,) = made["spec"]["rules"]
    paths = {(path["path"], path["pathType"]) for path in rule["http"]["paths"]}
    words = {path.split("/")[1] for _, path, _ in PAGES if path != "/"} | {"login", "logout", "theme", "static"}
    assert paths == {("/", "Exact"), ("/api/v1", "Prefix"), *((f"/{word}", "Prefix") for word in words)}
    assert {path["backend"]["service"]["name"] for path in rule["http"]["paths"]} == {"shop-dlx-router"}
    assert made["spec"]["tls"] == [{"hosts": ["dlx.example.com"], "secretName": "dlx-tls"}]


def test_the_readme_is_made_from_the_values() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert text == reference.chart(), "stale: make pages"


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (chart_version(__version__), __version__)


def test_default_policies_pass_lint(tmp_path_factory: pytest.TempPathFactory) -> None:
    (made,) = of_kind(rendered(MINIMAL), "ConfigMap")
    folder = tmp_path_factory.mktemp("policies")
    for name, text in made["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "dlx_router", "policy", "lint", str(folder)], check=True)


def _of_kubernetes(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from (
        manifest for manifest in objects if not manifest["apiVersion"].startswith(("monitoring.coreos.com", "keda.sh"))
    )


def _pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield pod_of(objects)
    for job in of_kind(objects, "CronJob"):
        yield job["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_probes_have_time_and_a_busy_router_is_not_killed() -> None:
    (container,) = pod_of(rendered(MINIMAL))["containers"]
    assert all(container[f"{probe}Probe"]["timeoutSeconds"] > 1 for probe in ("startup", "liveness", "readiness"))
    assert container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"] >= 60
