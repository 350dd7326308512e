"""Values that rendered what Kubernetes or the router refuses: each is taken as it is now, or refused by Helm.

The law over all of them is in test_chart_law.py.
"""

from collections.abc import Mapping
from typing import Any, Final

import helm_python
import pytest

from tests.deploy.chart import environment, of_kind, pod_of, rendered, values_of

MINIMAL: Final[Mapping[str, Any]] = {"amqp": {"existingSecret": "rabbit"}}
INGRESS: Final = {"api": {"tokensSecret": "tokens"}, "ingress": {"enabled": True, "host": "dlx.example.com"}}
PIPELINE: Final = {"enabled": True, "archiveClaim": "archive"}


@pytest.mark.parametrize("release", ["1234", "a.b"])
def test_a_release_whose_service_could_have_no_such_name_is_refused(release: str) -> None:
    with pytest.raises(helm_python.HelmError, match="set fullnameOverride"):
        rendered(MINIMAL, release)


@pytest.mark.parametrize(
    "text", ["  # indented\nversion: 1\npolicies: []\n", "\n\nversion: 1\n", "version: 1", "a\r\n b"]
)
def test_a_policy_file_arrives_as_it_was_written_however_it_begins(text: str) -> None:
    (made,) = of_kind(rendered({**MINIMAL, "policies": {"files": {"orders.yaml": text}}}), "ConfigMap")
    assert made["data"]["orders.yaml"] == text


@pytest.mark.parametrize("journal", ["off", False])
def test_the_journal_may_be_off_with_quotes_and_without(journal: object) -> None:
    """To YAML 1.1 an off without quotes is false, and Helm said that it had to be one of a list with off in it."""
    variables = environment(pod_of(rendered({**MINIMAL, "settings": {"journal": journal}})))
    assert variables["DLX_ROUTER_JOURNAL"] == "off"
    assert "DLX_ROUTER_INDEX_PATH" not in variables


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"image": {"repository": ""}}, r"image\.repository is empty"),
        ({"pipeline": {**PIPELINE, "image": {"repository": ""}}}, r"pipeline\.image\.repository is empty"),
        ({"pipeline": PIPELINE, "settings": {"journal": "off"}}, r"settings\.journal other than off"),
        ({"pipeline": PIPELINE, "settings": {"journal": False}}, r"settings\.journal other than off"),
        ({"policies": {"files": {"default.yaml": None}}}, "has no policy file"),
        ({"policies": {"files": {"default.yaml": None, "a.test.yaml": "version: 1\n"}}}, "has no policy file"),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, r"commonLabels has app\.kubernetes\.io/name"),
        ({"podLabels": {"app.kubernetes.io/component": "x"}}, "podLabels has app"),
        ({"monitoring": {"dashboards": {"labels": {"helm.sh/chart": "x"}}}}, r"dashboards\.labels has helm\.sh/chart"),
        ({"podAnnotations": {"note": "\x7f"}}, "control character"),
        ({"api": {"commandKey": "token"}}, r"api\.commandKey needs api\.tokensSecret"),
        ({**INGRESS, "networkPolicy": {"enabled": True}}, r"networkPolicy\.ingressFrom is empty"),
    ],
)
def test_what_would_not_run_is_refused_with_the_way_out(wrong: Mapping[str, Any], why: str) -> None:
    with pytest.raises(helm_python.HelmError, match=why):
        rendered({**MINIMAL, **wrong})


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://dlx.example.com/at/north/", "dlx.example.com,a.example"),
        ("http://dlx.example.com:8080", "dlx.example.com,a.example"),
        ("https://a.example", "a.example"),
        ("http://10.0.0.1/", "10.0.0.1,a.example"),
        ("http://[fd00::5]/", "a.example"),  # an address, which is always allowed and is no name
        ("", "a.example"),
    ],
)
def test_people_may_come_by_the_host_that_links_lead_to(url: str, allowed: str) -> None:
    """Links of webhooks and alerts led everybody to a 403."""
    console = {"url": url, "allowedHosts": " a.example ,"}
    assert environment(pod_of(rendered({**MINIMAL, "console": console})))["DLX_ROUTER_HTTP_ALLOWED_HOSTS"] == allowed


@pytest.mark.parametrize(
    ("vhosts", "args", "added"),
    [
        ("", [], None),
        ("shop", [], "shop"),
        (" shop ,", [], "shop"),
        ("shop,shop", [], "shop"),
        ("shop", ["--option", "vhost=other"], None),
        ("a,b", ["--option", "vhost=b"], None),
        ("a,b", ["--option=vhost=b"], None),
    ],
)
def test_the_pipeline_archives_the_vhost_that_the_router_serves(
    vhosts: str, args: list[str], added: str | None
) -> None:
    """It archived the URL's, which may be another: ingest knows nothing of settings.vhosts."""
    usual = ["pipeline", "ingest", "--archive", "/archive", "--once"]
    pipeline = {**PIPELINE, "args": [*usual, *args]}
    (job,) = of_kind(rendered({**MINIMAL, "settings": {"vhosts": vhosts}, "pipeline": pipeline}), "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [*usual, *args, *([] if added is None else ["--option", f"vhost={added}"])]


def test_the_network_policy_holds_for_the_pipeline_and_lets_out_what_is_named() -> None:
    collector = {"ports": [{"port": 4318, "protocol": "TCP"}]}
    network = {"enabled": True, "extraEgress": [collector], "egressTo": [{"podSelector": {}}]}
    objects = rendered({**values_of("pipeline"), "networkPolicy": network})
    router, pipeline = of_kind(objects, "NetworkPolicy")
    (job,) = of_kind(objects, "CronJob")
    labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert pipeline["spec"]["podSelector"]["matchLabels"] == labels
    assert pipeline["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in pipeline["spec"], "nobody has to reach it"
    assert collector in router["spec"]["egress"]
    assert [rule for rule in router["spec"]["egress"] if rule["ports"][0]["port"] != 9719] == pipeline["spec"]["egress"]
    assert len(of_kind(rendered({**MINIMAL, "networkPolicy": network}), "NetworkPolicy")) == 1


@pytest.mark.parametrize(
    ("listens", "url"),
    [
        ("0.0.0.0", None),
        ("::", "http://[::1]:9719"),
        ("10.0.0.5", "http://10.0.0.5:9719"),
        ("fd00::5", "http://[fd00::5]:9719"),
    ],
)
def test_commands_in_the_pod_have_a_token_and_find_the_port(listens: str, url: str | None) -> None:
    """`kubectl exec deploy/NAME -- dlx-router queues` was refused, whatever was set."""
    values = {**MINIMAL, "settings": {"httpHost": listens}, "api": {"tokensSecret": "tokens", "commandKey": "token"}}
    pod = pod_of(rendered(values))
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "api"]
    items = [{"key": "tokens.yaml", "path": "tokens"}, {"key": "token", "path": "token"}]
    assert volume["secret"] == {"secretName": "tokens", "items": items}
    assert environment(pod)["DLX_ROUTER_API_TOKEN_FILE"] == "/etc/dlx-router/api/token"
    assert environment(pod).get("DLX_ROUTER_API_URL") == url
