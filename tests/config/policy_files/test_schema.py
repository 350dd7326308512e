"""The JSON Schema takes every sound policy, and refuses what a wrong key or shape is."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.config.findings import Report
from dlx_router.config.language import yaml_tree
from dlx_router.config.language.keys import DEFINITION
from dlx_router.config.language.yaml_tree import Items, Node, Pairs
from dlx_router.config.policy_files import json_schema
from tools.pages import reference

ROOT: Final = Path(__file__).parents[3]
SHIPPED: Final = sorted(path for path in (ROOT / "policies").glob("*.yaml") if not path.name.endswith(".test.yaml"))
EXAMPLES: Final = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "lint.md").read_text(), re.MULTILINE | re.DOTALL)
# Codes that are about a key or a shape, which a schema can say; bad values it says as far as it can.
STRUCTURAL: Final = [
    "policies: []",
    "version: 2",
    "version: 1\npolices: []",
    "version: 1\npolicies: {}",
    "version: 1\npolicies: [words]",
    "version: 1\npolicies: [{match: a}]",
    "version: 1\npolicies: [{name: a}]",
    "version: 1\npolicies: [{name: a, match: a, queue: b}]",
    "version: 1\npolicies: [{name: a, match: orders*}]",
    "version: 1\npolicies: [{name: a, queue: 1}]",
    "version: 1\npolicies: [{name: a, queue: a, priority: high}]",
    "version: 1\npolicies: [{name: a, queue: a, apply-to: exchanges}]",
    "version: 1\npolicies: [{name: a, queue: a, labels: {team: 1}}]",
    "version: 1\npolicies: [{name: a, queue: a, max-redrives: 1}]",
    "version: 1\nattachments: [{mode: inbox}]",
    "version: 1\nattachments: [{queue: a, mode: inbx}]",
    "version: 1\ndelayed: [{exchange: a}]",
    "version: 1\ndelayed: [{exchange: a, to: b, default: soon}]",
]
IN_A_DEFINITION: Final = [
    "max-delivery-atempts: 3",
    "max-delivery-attempts: 0",
    "max-delivery-attempts: -2",
    "max-redrives: 0",
    "redelivery-delay: 5 apples",
    "redelivery-delay: -5",
    "redelivery-delay: 1.5",
    "redelivery-delay-multiplier: 0",
    "redelivery-collision-avoidance-factor: 1.1",
    "auto-create-dead-letter-resources: yes",
    "dead-letter-queue-type: stream",
    "dead-letter-headers: [emq, emq]",
    "retry-on: [timeout]",
    "dead-letter-routing-key-rewrite: [{match: a}]",
    "on: {rejeted: {}}",
    "on: {rejected: {on: {}}}",
    "on: {rejected: {message-ttl: 1h}}",
    "outage: {deaths: 50, within: 10s}",
    "outage: {deaths: 50, within: 10s, probe-every: 99}",
    "ordering: lifo",
    "never-retry: 'true'",
    "alert: {}",
    "journal: {body: everything}",
    "dead-letter-queue-max-length: 0",
]


def plain(node: Node | None) -> Any:
    match node:
        case None:
            return None
        case Items():
            return [plain(item) for item in node.items]
        case Pairs():
            return {key.text: plain(value) for key, value in node.pairs}
        case _:
            return node.value


def fits(text: str) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    report = Report("p.yaml")
    written = plain(yaml_tree.parse(text.encode(), report))
    assert not report.findings, text
    validator = jsonschema.Draft202012Validator(json_schema.schema())
    return bool(validator.is_valid(written))


def test_the_schema_is_one() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(json.loads(json_schema.schema_text()))


@pytest.mark.parametrize("file", SHIPPED, ids=[file.name for file in SHIPPED])
def test_what_is_shipped_fits(file: Path) -> None:
    assert fits(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", EXAMPLES[1::2])
def test_the_ways_out_of_the_lint_page_fit(text: str) -> None:
    assert fits(text)


@pytest.mark.parametrize("text", STRUCTURAL)
def test_a_wrong_file_does_not_fit(text: str) -> None:
    assert not fits(text)


@pytest.mark.parametrize("definition", IN_A_DEFINITION)
def test_a_wrong_definition_does_not_fit(definition: str) -> None:
    assert not fits(f"version: 1\npolicies:\n- name: a\n  match: a\n  definition: {{{definition}}}")


def test_every_key_says_what_it_is_for_and_its_default() -> None:
    definitions = json_schema.schema()["$defs"]
    assert [*definitions["definition"]["properties"]] == [*DEFINITION, "on"]
    keys = {**definitions["definition"]["properties"], **definitions["overlay"]["properties"]}
    for name, key in DEFINITION.items():
        assert keys[name]["description"].startswith(key.doc)
        assert ("default" in keys[name]) == (not key.says) or key.says in keys[name]["description"]
    assert keys["max-delivery-attempts"]["default"] == 10
    assert keys["retry-on"]["default"] == ["rejected", "delivery_limit", "application"]


def test_the_definition_has_every_key_of_an_overlay_and_the_overlays() -> None:
    definitions = json_schema.schema()["$defs"]
    assert {*definitions["definition"]["properties"]} == {*DEFINITION, "on"}
    assert {*definitions["overlay"]["properties"]} == {name for name, key in DEFINITION.items() if not key.of_queue}
    assert all("description" in entry for entry in definitions["policy"]["properties"].values())
    assert all("description" in entry for entry in definitions["attachment"]["properties"].values())
    assert all("description" in entry for entry in definitions["delayed"]["properties"].values())


def test_the_page_of_the_policy_language_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "policies.md").read_text(encoding="utf-8") == reference.policies(), "run `make pages`"
