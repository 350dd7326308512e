"""The example for Alertmanager: it fits the rules, and what its template makes of an alert is looked at.

`amtool` reads both where it is installed. Beside it a small reader of Go's templates stands here, of what ours use.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import ROOT, of_kind, rendered
from tests.deploy.test_files import RULES, alerts

FOLDER: Final = ROOT / "deploy" / "alertmanager"
CONFIG: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "alertmanager.yml").read_text(encoding="utf-8"))
LINKS: Final = ("runbook_url", "console_url")
# Of https://prometheus.io/docs/alerting/latest/configuration/, what the example uses.
_TEXTS: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_DURATION: Final = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d))+$"}
_ROUTE: Final = {
    "type": "object",
    "properties": {
        "receiver": {"type": "string"},
        "group_by": _TEXTS,
        "matchers": _TEXTS,
        "group_wait": _DURATION,
        "group_interval": _DURATION,
        "repeat_interval": _DURATION,
        "routes": {"type": "array", "items": {"$ref": "#/$defs/route"}},
    },
    "additionalProperties": False,
}
_SLACK_TEXTS: Final = ("api_url_file", "channel", "color", "title", "title_link", "text", "fallback")
_SLACK: Final = {
    "type": "object",
    "properties": {
        **{key: {"type": "string"} for key in _SLACK_TEXTS},
        "send_resolved": {"type": "boolean"},
    },
    "required": ["api_url_file", "channel"],
    "additionalProperties": False,
}
SCHEMA: Final = {
    "$defs": {"route": _ROUTE},
    "type": "object",
    "properties": {
        "templates": _TEXTS,
        "route": {"allOf": [{"$ref": "#/$defs/route"}], "required": ["receiver"]},
        "inhibit_rules": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"source_matchers": _TEXTS, "target_matchers": _TEXTS, "equal": _TEXTS},
                "required": ["source_matchers", "target_matchers"],
                "additionalProperties": False,
            },
        },
        "receivers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "slack_configs": {"type": "array", "items": _SLACK}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["route", "receivers"],
    "additionalProperties": False,
}


def routes(route: dict[str, Any]) -> list[dict[str, Any]]:
    """It and all below it."""
    return [route, *(inner for each in route.get("routes", ()) for inner in routes(each))]


def matchers() -> list[str]:
    """All of them."""
    texts = [text for route in routes(CONFIG["route"]) for text in route.get("matchers", ())]
    for rule in CONFIG["inhibit_rules"]:
        texts += [*rule["source_matchers"], *rule["target_matchers"]]
    return texts


def labels(rule: dict[str, Any]) -> set[str]:
    """What an alert may be grouped by: labels that it is given, and those of its expression."""
    names = {name for group in re.findall(r"(?:by|on) \(([^)]*)\)", rule["expr"]) for name in re.findall(r"\w+", group)}
    recorded = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    for record in recorded:
        if record["record"] in rule["expr"]:
            names |= labels(record)
    return names | {*rule.get("labels", ())} | {"alertname"}


def test_it_is_what_alertmanager_reads() -> None:
    pytest.importorskip("jsonschema").validate(CONFIG, SCHEMA)


def test_every_receiver_is_there_and_used() -> None:
    named = {route["receiver"] for route in routes(CONFIG["route"]) if "receiver" in route}
    assert named == {receiver["name"] for receiver in CONFIG["receivers"]}


def test_matchers_name_alerts_and_labels_that_there_are() -> None:
    names = {rule["alert"] for rule in alerts()}
    known = {label for rule in alerts() for label in labels(rule)}
    for text in matchers():
        matcher = re.fullmatch(r'(\w+)(=|!=|=~|!~)"([^"]*)"', text)
        assert matcher is not None, text
        assert matcher[1] in known
        if matcher[1] == "alertname":
            assert {*matcher[3].split("|")} <= names, text
        else:
            assert any(rule["labels"].get(matcher[1]) == matcher[3] for rule in alerts()), text
    grouped = {label for route in routes(CONFIG["route"]) for label in route.get("group_by", ())}
    assert grouped | {label for rule in CONFIG["inhibit_rules"] for label in rule.get("equal", ())} <= known


def test_what_must_be_equal_is_a_label_of_both_sides() -> None:
    """`absent(series{a="b"})` has the label a; the chart says namespace and job there, as of every other series."""
    by_name = {rule["alert"]: labels(rule) for rule in alerts()}
    asked = {"existingSecret": "rabbit"}
    monitoring = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    (made,) = of_kind(rendered({"amqp": asked, "monitoring": monitoring}), "PrometheusRule")
    (down,) = [rule for group in made["spec"]["groups"] for rule in group["rules"] if rule.get("alert") == "RouterDown"]
    by_name["RouterDown"] |= {*re.findall(r"(\w+)=\"", re.fullmatch(r"absent\((.*)\)", down["expr"])[1])}  # type: ignore[index]  # it is that
    for rule in CONFIG["inhibit_rules"]:
        for text in (*rule["source_matchers"], *rule["target_matchers"]):
            for name in re.findall(r'"(.*)"', text)[0].split("|"):
                assert {*rule.get("equal", ())} <= by_name[name], name


def is_silenced(target: dict[str, str], source: dict[str, str]) -> bool:
    """Whether Alertmanager keeps `target` back while `source` fires; a label that neither has is equal."""
    return any(
        all(matches(text, source) for text in rule["source_matchers"])
        and all(matches(text, target) for text in rule["target_matchers"])
        and all(source.get(name, "") == target.get(name, "") for name in rule.get("equal", ()))
        for rule in CONFIG["inhibit_rules"]
    )


def matches(text: str, alert: dict[str, str]) -> bool:
    """Whether one matcher holds."""
    name, operator, value = re.fullmatch(r'(\w+)(=~|=)"([^"]*)"', text).groups()  # type: ignore[union-attr]  # looked at above
    has = alert.get(name, "")
    return re.fullmatch(value, has) is not None if operator == "=~" else has == value


SHOP: Final = {"namespace": "shop", "job": "dlx-router", "vhost": "/", "policy": "orders"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("RouterDown", "RouterDisconnected"),
        ("RouterDown", "RouterStalled"),
        ("RouterDisconnected", "RouterStalled"),
        ("DeadLetterRateAbovePolicy", "DeadLetterRateHigh"),
    ],
)
def test_an_installation_that_fails_keeps_no_alert_of_another_one_back(source: str, target: str) -> None:
    fires = SHOP | {"alertname": source}
    assert is_silenced(SHOP | {"alertname": target}, fires)
    for other in ({"namespace": "bank"}, {"job": "dlx-router-observer"}, {"namespace": "", "job": ""}):
        assert not is_silenced(SHOP | {"alertname": target} | other, fires), other


def test_alerts_are_grouped_and_kept_back_inside_of_one_installation() -> None:
    for route in routes(CONFIG["route"]):
        assert {"namespace", "job"} <= {*route.get("group_by", ("namespace", "job"))}
    for rule in CONFIG["inhibit_rules"]:
        assert {"namespace", "job"} <= {*rule["equal"]}, rule


# -- the template -----------------------------------------------------------------------------------------------------


def alert(status: str = "firing", **annotations: str) -> dict[str, Any]:
    defaults = {"summary": "Letters die.", "description": "Look at the groups.", **dict.fromkeys(LINKS, "")}
    return {
        "status": status,
        "labels": {"alertname": "DeadLetterRateHigh", "severity": "warning"},
        "annotations": {**defaults, **annotations},
        "startsAt": "2026-11-23T05:08:06Z",
    }


def test_alertmanager_s_own_tool_accepts_it(tmp_path: Path) -> None:
    if (amtool := shutil.which("amtool")) is None:
        pytest.skip("amtool is not here: Debian's package prometheus-alertmanager")
    text = (
        (FOLDER / "alertmanager.yml")
        .read_text(encoding="utf-8")
        .replace("/etc/alertmanager/slack.tmpl", f"{FOLDER}/slack.tmpl")
    )
    (tmp_path / "alertmanager.yml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [amtool, "check-config", str(tmp_path / "alertmanager.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
