"""Values of the chart: each has an effect, and what cannot work together is refused before a cluster has it."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import helm_python
import pytest
import yaml

from tests.deploy.chart import CHART, environment, of_kind, pod_of, rendered
from tools.pages import reference

MINIMAL: Final[Mapping[str, Any]] = {"amqp": {"existingSecret": "rabbit"}}
SIGNED: Final = {**MINIMAL, "provenance": {"existingSecret": "key"}}
CLAIMED: Final = {"index": {"existingClaim": "claim"}}
KEDA: Final = {"enabled": True, "existingSecret": "reader"}
ALL_ON: Final[Mapping[str, Any]] = {
    "amqp": {"existingSecret": "rabbit"},
    "management": {"existingSecret": "management"},
    "tls": {"existingSecret": "tls", "certKey": "crt", "keyKey": "key"},
    "provenance": {"existingSecret": "key"},
    "api": {"tokensSecret": "tokens"},
    "webhooks": {"existingSecret": "webhooks"},
    "console": {"sessionSecret": "sessions", "sso": {"proxies": "10.0.0.1", "roles": "sre=admin"}},
    "ingress": {"enabled": True, "host": "dlx.example.com"},
    "keda": KEDA,
    "networkPolicy": {"enabled": True, "ingressFrom": [{"podSelector": {}}]},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboards")},
    "pipeline": {"enabled": True, "archiveClaim": "archive"},
}
# What is no value if something is added to the default.
OTHERWISE: Final[Mapping[str, Any]] = {
    "image.pullPolicy": "Always",
    "image.digest": f"sha256:{'0' * 64}",
    "console.url": "https://dlx.example.com",
    "settings.declare": "never",
    "settings.journal": "required",
    "settings.logFormat": "text",
    "settings.logLevel": "debug",
    "service.type": "NodePort",
    "resources": {"limits": {"memory": "1Gi"}},
    "monitoring.serviceMonitor.interval": "30s",
    "policies.files": {"orders.yaml": "version: 1\n"},
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 2}],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "networkPolicy.ingressFrom": [{"namespaceSelector": {}}],
    "networkPolicy.egressTo": [{"podSelector": {}}],
    "networkPolicy.brokerPorts": [5673],
    "networkPolicy.webhookPorts": [8443],
    "networkPolicy.extraEgress": [{"ports": [{"port": 4318}]}],
    "monitoring.prometheusRule.disabled": ["RouterDown"],
    "monitoring.prometheusRule.runbookUrl": "https://runbooks.example.com",
    "monitoring.prometheusRule.series": 'app="a"',
    "console.sso.headers": "X-Auth-User,X-Auth-Groups",
    "console.sso.groupSeparator": "|",
    "console.trustedProxies": "10.0.1.0/24",
    "console.sso.proxies": "10.0.0.2",
    "console.sso.roles": "sre=viewer",
    "index.sizeLimit": "6Gi",
    "pipeline.schedule": "@hourly",
    **{f"pipeline.resources.{name}": "4Gi" for name in ("requests.cpu", "requests.memory", "limits.memory")},
}
SWITCHED_ON: Final = {
    *(f"{name}.enabled" for name in ("ingress", "keda", "networkPolicy", "pipeline")),
    *(f"monitoring.{name}.enabled" for name in ("serviceMonitor", "prometheusRule", "dashboards")),
}
LEAVES: Final = dict(reference.leaves(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", LEAVES)
def test_every_value_has_an_effect(name: str) -> None:
    base, before = _base(scaled=name not in {"replicaCount", "index.existingClaim"})
    changed = LEAVES[name] if name in SWITCHED_ON else OTHERWISE.get(name, _other(LEAVES[name]))
    assert rendered(_with(base, name, changed)) != before


@cache
def _base(*, scaled: bool) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What values are changed in, with KEDA or without, and what it renders to: once, not for each value."""
    base = ALL_ON if scaled else {**ALL_ON, "keda": {}}
    return base, rendered(base)


def _other(value: Any) -> Any:
    match value:
        case bool():  # before int, which it is too
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}x"
        case list():
            return [*value, "x"]
        case _:
            return {**value, "x": "y"}


def _with(values: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {**values, first: _with(values.get(first, {}), rest, value) if rest else value}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({**SIGNED, **CLAIMED, "replicaCount": 2}, r"index\.existingClaim"),
        ({**SIGNED, **CLAIMED, "keda": KEDA}, r"index\.existingClaim"),
        ({**MINIMAL, "settings": {"drainSeconds": 40}}, "terminationGracePeriodSeconds"),
        ({**MINIMAL, "terminationGracePeriodSeconds": 20}, r"settings\.drainSeconds"),
        ({**MINIMAL, "settings": {"vhosts": "shop, *"}}, r"management\.existingSecret"),
        ({**MINIMAL, "settings": {"journal": "off"}, "webhooks": {"existingSecret": "w"}}, r"settings\.journal"),
        ({**MINIMAL, "tls": {"certKey": "crt", "keyKey": "key"}}, r"tls\.existingSecret"),
        ({**MINIMAL, "console": {"sso": {"roles": "sre=admin"}}}, r"console\.sso\.proxies"),
    ],
)
def test_what_cannot_work_together_is_refused_with_the_way_out(wrong: Mapping[str, Any], why: str) -> None:
    with pytest.raises(helm_python.HelmError, match=why):
        rendered(wrong)


def test_a_router_whose_index_is_on_a_claim_is_replaced_and_not_doubled() -> None:
    """Two pods at once would wait for each other: for the claim on another node, for the index's lock on the same."""
    (deployment,) = of_kind(rendered({**SIGNED, **CLAIMED}), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (without,) = of_kind(rendered(SIGNED), "Deployment")
    assert without["spec"]["strategy"]["type"] == "RollingUpdate"


def test_cookies_need_tls_where_there_is_an_ingress_with_tls_and_not_where_there_is_none() -> None:
    for enabled, console in ((False, "on"), (True, "https")):
        ingress = {"enabled": enabled, "host": "a.example", "tlsSecret": "tls"}
        values = {**MINIMAL, "api": {"tokensSecret": "tokens"}, "ingress": ingress}
        assert environment(pod_of(rendered(values)))["DLX_ROUTER_CONSOLE"] == console
