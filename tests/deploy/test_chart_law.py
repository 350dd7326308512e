"""Law: values that the schema accepts render objects that Kubernetes takes and settings that the router takes.

Or they are refused with the way out. What is Kubernetes' own (affinity, peers of a network policy …) is not drawn: it
is handed on as it is, and Kubernetes says what is wrong with it. Whether addresses are some is the router's to judge.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import helm_python
import kubernetes_validate
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.config.environment.settings import Settings
from tests.deploy.chart import CHART, environment, of_kind, pod_of, rendered
from tests.deploy.test_chart_values import ALL_ON, MINIMAL
from tests.support.thoroughness import THOROUGH

KUBERNETES: Final = "1.32"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
# What YAML reads as something else than text, or not at all, where it stands without quotes.
HARD: Final = (
    "1234", "true", "null", "~", "1e3", "0x1f", "1_000", "1.5", "off", "y", "=", "2001-01-01", "12:30:45", "- a",
    "a: b", "*a", "&a", "!a", "{a", "[a", "%a", "@a", "`a", "|", ">", "#a", "a #b", " a", "a ", "'", '"', "\\", "a\\nb",
    "\t", "\n", "  indented: 1\nless: 2\n", "\n\n a", "a\r\nb", "é", "\x7f", "\u2028", "{{ .Values }}", "$1", "",
)  # fmt: skip
JUDGED_BY_THE_ROUTER: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "console.trustedProxies": st.sampled_from(["", "10.0.0.1", "10.0.0.0/24, fd00::5"]),
    "console.sso.proxies": st.sampled_from(["10.0.0.1", "10.0.0.0/24,fd00::/64"]),
    "console.sso.groupSeparator": st.sampled_from(["", ";", "|"]),
    "console.sso.headers": st.sampled_from(["", "X-Auth-User,X-Auth-Groups"]),
    "console.sso.roles": st.sampled_from(["sre=admin", "*=viewer", "on-call = operator, CN=a=viewer"]),
    "console.url": st.sampled_from(
        ["", "https://dlx.example.com/at/a%20b/", "http://[fd00::5]:8080", "http://10.0.0.1"]
    ),
}


def _leaves(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, child in node["properties"].items():
        name = f"{above}{key}"
        if "properties" in child:
            yield from _leaves(child, f"{name}.")
        else:
            yield name, child


def _drawn(node: Mapping[str, Any]) -> st.SearchStrategy[Any] | None:
    """Values of a part of the schema; None where it is free for what is Kubernetes' own."""
    if "$ref" in node:
        return _drawn(SCHEMA["definitions"][node["$ref"].rpartition("/")[2]])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if "anyOf" in node:
        return st.one_of(*(drawn for part in node["anyOf"] if (drawn := _drawn(part)) is not None))
    return _OF_TYPE[node["type"]](node)


def _integers(node: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    low, high = node.get("minimum", 0), node.get("maximum", 10**9)
    return st.integers(low, high) | st.sampled_from([low, min(high, 10**6), min(high, 10**7)])


def _texts(node: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    pattern, longest = node.get("pattern", ""), node.get("maxLength", 300)

    def accepted(text: str) -> bool:
        refused = "not" in node and re.search(node["not"]["pattern"], text)
        fits = re.search(pattern.removesuffix("$") + r"\Z" * pattern.endswith("$"), text)
        return bool(fits) and not refused and node.get("minLength", 0) <= len(text) <= longest

    alphabet = st.characters(codec="utf-8", exclude_characters="\x00")  # none of a container's environment has it
    free = st.from_regex(pattern, fullmatch=True, alphabet=alphabet) if pattern else st.text(alphabet, max_size=30)
    hard = [text for text in HARD if accepted(text)]
    return st.one_of(*([st.sampled_from(hard)] if hard else []), free.filter(accepted))


def _lists(node: Mapping[str, Any]) -> st.SearchStrategy[Any] | None:
    item = _drawn(node["items"])
    return None if item is None else st.lists(item, min_size=node.get("minItems", 0), max_size=3)


def _objects(node: Mapping[str, Any]) -> st.SearchStrategy[Any] | None:
    if not isinstance(node.get("additionalProperties"), dict):
        return None
    value = _drawn(node["additionalProperties"])
    assert value is not None
    return st.dictionaries(_texts(node.get("propertyNames", {})), value, max_size=3)


_OF_TYPE: Final[Mapping[str, Callable[[Mapping[str, Any]], st.SearchStrategy[Any] | None]]] = {
    "array": _lists,
    "boolean": lambda _node: st.booleans(),
    "integer": _integers,
    "number": lambda _node: st.integers(0, 10**9) | st.floats(0, 10**6),
    "object": _objects,
    "string": _texts,
}
_BY_SCHEMA: Final = {name: drawn for name, node in _leaves(SCHEMA) if (drawn := _drawn(node)) is not None}
STRATEGIES: Final = {**_BY_SCHEMA, **JUDGED_BY_THE_ROUTER}
CHANGES: Final = st.lists(st.sampled_from(sorted(STRATEGIES)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: STRATEGIES[name] for name in names})
)
BASES: Final = st.sampled_from([MINIMAL, ALL_ON, {**ALL_ON, "keda": {}}])
RELEASES: Final = st.sampled_from(["shop", "true", "null", "r" * 53, "dlx-router"])


def _with(values: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {**values, first: _with(values.get(first, {}), rest, value) if rest else value}


@settings(max_examples=40 * THOROUGH)
@given(base=BASES, changes=CHANGES, release=RELEASES)
def test_what_the_schema_accepts_is_taken_or_refused_with_the_way_out(
    base: Mapping[str, Any], changes: Mapping[str, Any], release: str
) -> None:
    values = dict(base)
    for name, value in changes.items():
        values = _with(values, name, value)
    try:
        objects = rendered(values, release)
    except helm_python.HelmValuesError as error:
        raise AssertionError("what is drawn is what the schema accepts") from error
    except helm_python.HelmError as error:
        if not str(error).startswith("execution error at"):  # no refusal of ours, but a template that breaks
            raise
        return
    for manifest in objects:
        _assert_taken(manifest)
    for name, text in changes.get("policies.files", {}).items():
        assert [made["data"][name] for made in of_kind(objects, "ConfigMap") if name in made["data"]] in ([], [text])
    _assert_set(environment(pod_of(objects)))


def _assert_taken(manifest: Mapping[str, Any]) -> None:
    metadata = manifest["metadata"]
    texts = [metadata["name"], *metadata["labels"].items(), *metadata.get("annotations", {}).items()]
    assert all(isinstance(text, str | tuple) for text in texts)
    assert all(isinstance(part, str) for text in texts for part in text)
    if not manifest["apiVersion"].startswith(("monitoring.coreos.com", "keda.sh")):
        _validate(json.dumps(manifest))


@lru_cache(maxsize=1_000)
def _validate(manifest: str) -> None:
    """Most objects are those of the example before."""
    kubernetes_validate.validate(json.loads(manifest), KUBERNETES, strict=True)


def _assert_set(variables: Mapping[str, str]) -> None:
    ours = {
        name.removeprefix("DLX_ROUTER_").lower(): value for name, value in variables.items() if "DLX_ROUTER_" in name
    }
    Settings(**ours)  # type: ignore[arg-type]  # as the environment has them
