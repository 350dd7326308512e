"""The example for Alertmanager: it fits the rules, and what its template makes of an alert is looked at.

`amtool` reads both where it is installed. Beside it a small reader of Go's templates stands here, of what ours use.
"""

import json
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
TEMPLATE: Final = (FOLDER / "slack.tmpl").read_text(encoding="utf-8")
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


def test_every_alert_has_both_links_and_they_lead_to_its_own_section_and_to_a_page() -> None:
    for rule in alerts():
        runbook, console = (rule["annotations"][name] for name in LINKS)
        assert runbook == f"{{{{ with $externalLabels.dlx_runbooks }}}}{{{{ . }}}}#{rule['alert'].lower()}{{{{ end }}}}"
        begin = "{{ with $externalLabels.dlx_console }}{{ . }}/"
        assert (console.startswith(begin), console.endswith("{{ end }}")) == (True, True)
        inside = console.removeprefix(begin).removesuffix("{{ end }}")
        assert {*re.findall(r"\$labels\.(\w+)", inside)} <= labels(rule)
        assert re.sub(r"\{\{ \$labels\.\w+ \| urlquery \}\}", "", inside).isascii()
        assert "{{" not in re.sub(r"\{\{ \$labels\.\w+ \| urlquery \}\}", "", inside), (
            "escaped, or a name changes the link"
        )


# -- the template -----------------------------------------------------------------------------------------------------


def alert(status: str = "firing", **annotations: str) -> dict[str, Any]:
    defaults = {"summary": "Letters die.", "description": "Look at the groups.", **dict.fromkeys(LINKS, "")}
    return {
        "status": status,
        "labels": {"alertname": "DeadLetterRateHigh", "severity": "warning"},
        "annotations": {**defaults, **annotations},
        "startsAt": "2026-11-23T05:08:06Z",
    }


def data(*firing: dict[str, Any], status: str = "firing", severity: str = "warning", **group: str) -> dict[str, Any]:
    """As Alertmanager hands it to a template. `group`: by which labels it is grouped, besides the alert's name."""
    return {
        "receiver": "slack",
        "status": status,
        "alerts": [*firing],
        "groupLabels": {"alertname": "DeadLetterRateHigh", **group},
        "commonLabels": {"severity": severity},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager",
    }


class GoTemplate:
    """Templates as text/template reads them, so far as ours need it: anything else is an error."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"\{\{/\*.*?\*/\}\}", "", text, flags=re.DOTALL)
        self._parts = re.split(r"(\{\{ .*? \}\})", text)
        self.defined: dict[str, int] = {}
        for at, part in enumerate(self._parts):
            if definition := re.fullmatch(r'\{\{ define "([\w.-]+)" \}\}', part):
                self.defined[definition[1]] = at + 1

    def render(self, name: str, dot: Any) -> str:
        """What it makes of the data."""
        return self._block(self.defined[name], dot)[0]

    def _block(self, at: int, dot: Any, *, off: bool = False) -> tuple[str, int, str]:
        """The text up to the action that ends it, where that stands, and what it is."""
        out = ""
        while True:
            part = self._parts[at]
            action = part[3:-3] if part.startswith("{{ ") else None
            if action is None:
                out += "" if off else part
            elif action == "end" or action.startswith("else"):
                return out, at, action
            elif (word := action.partition(" ")[0]) in {"if", "with", "range"}:
                text, at = self._choice(at, word, dot, off=off)
                out += text
            else:
                out += "" if off else str(self._value(action, dot))
            at += 1

    def _choice(self, at: int, word: str, dot: Any, *, off: bool) -> tuple[str, int]:
        out, done, action = "", off, self._parts[at][3:-3]
        while True:
            condition = action.removeprefix("else").strip()
            value: Any = None if done or not condition else self._value(condition.partition(" ")[2], dot)
            takes = not done and (bool(value) or not condition)
            dots: list[Any] = [*value] if takes and word == "range" else [value if takes and word == "with" else dot]
            for inner in dots[:-1]:
                out += self._block(at + 1, inner)[0]
            text, at, action = self._block(at + 1, dots[-1], off=not takes)
            out += text
            done |= takes
            if action == "end":
                return out, at

    def _value(self, text: str, dot: Any) -> Any:
        first, *functions = text.split(" | ")
        value = self._call(first, dot)
        for function in functions:
            value = self._call(f"{function} %", {"%": value})
        return value

    def _call(self, text: str, dot: Any) -> Any:
        words = list(re.findall(r'\([^)]*\)|"[^"]*"|\S+', text))
        values = [self._word(word, dot) for word in words[1:]]
        match words[0], values:
            case "eq", [a, b]:
                return a == b
            case "gt", [a, b]:
                return a > b
            case "len", [a]:
                return len(a)
            case "reReplaceAll", [pattern, to, value]:
                return re.sub(pattern, lambda _: to, value)
            case word, [form] if word.endswith(".UTC.Format"):
                assert form == "2006-01-02 15:04:05 MST", "Go's way to say how a time looks"
                return self._word(word.removesuffix(".UTC.Format"), dot).replace("T", " ").replace("Z", " UTC")
            case word, []:
                return self._word(word, dot)
        raise AssertionError(f"not known: {text}")

    def _word(self, word: str, dot: Any) -> Any:
        if word.startswith("("):
            return self._call(word[1:-1], dot)
        if word.startswith('"'):
            return word[1:-1]
        if word.isdigit():
            return int(word)
        if word == "%":
            return dot["%"]
        for name in filter(None, word.split(".")):
            if name == "Firing":
                dot = [entry for entry in dot if entry["status"] == "firing"]
            else:
                dot = dot.get(name[:1].lower() + name[1:], "")
        return dot


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("color", data(alert()), "warning"),
        ("color", data(alert(), severity="critical"), "danger"),
        ("color", data(alert("resolved"), status="resolved", severity="critical"), "good"),
        ("title", data(alert()), "DeadLetterRateHigh"),
        ("title", data(alert(), alert()), "DeadLetterRateHigh (2)"),
        ("title", data(alert("resolved"), status="resolved"), "over: DeadLetterRateHigh"),
        ("title", data(alert(), namespace="shop", job="dlx-router"), "DeadLetterRateHigh · shop · dlx-router"),
        ("title", data(alert(), job="<!here>"), "DeadLetterRateHigh · &lt;!here>"),
        ("text", data(alert()), "\n*Letters die.*\nLook at the groups.\nsince 2026-11-23 05:08:06 UTC\n"),
        (
            "text",
            data(alert(runbook_url="https://d/o.html#a", console_url="https://c/letters?state=dead&policy=a%20b")),
            (
                "\n*Letters die.*\nLook at the groups.\nsince 2026-11-23 05:08:06 UTC"
                " · <https://d/o.html#a|what to do> · <https://c/letters?state=dead&policy=a%20b|look>\n"
            ),
        ),
        (
            "text",
            data(alert(summary="Letters of policy <!channel> die."), alert(summary="<https://evil|here>")),
            (
                "\n*Letters of policy &lt;!channel> die.*\nLook at the groups.\nsince 2026-11-23 05:08:06 UTC\n"
                "\n*&lt;https://evil|here>*\nLook at the groups.\nsince 2026-11-23 05:08:06 UTC\n"
            ),
        ),
    ],
)
def test_what_slack_is_told(name: str, given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert GoTemplate(TEMPLATE).render(f"dlx-router.{name}", given) == expected
    if (amtool := shutil.which("amtool")) is not None:
        (tmp_path / "data.json").write_text(json.dumps(given), encoding="utf-8")
        argv = [
            amtool,
            "template",
            "render",
            f"--template.glob={FOLDER}/*.tmpl",
            f"--template.data={tmp_path}/data.json",
        ]
        argv += ["--template.text", f'{{{{ template "dlx-router.{name}" . }}}}']
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, expected.strip()), done.stderr


def test_every_template_is_used_and_every_one_that_is_used_is_there() -> None:
    used = {
        name
        for receiver in CONFIG["receivers"]
        for name in re.findall(r'template "([\w.-]+)"', json.dumps(receiver).replace("\\", ""))
    }
    assert used == {*GoTemplate(TEMPLATE).defined}


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
