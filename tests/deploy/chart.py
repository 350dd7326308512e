"""The chart as Helm renders it: objects by kind."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "dlx-router"
VARIATIONS: Final = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))


class _Strict(yaml.CSafeLoader):  # in C: five times as fast
    """As Kubernetes reads: a key stands once in a map, and 1e3 is a number, which PyYAML does not know."""


def _map(loader: _Strict, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise yaml.constructor.ConstructorError(None, None, f"twice: {twice}", node.start_mark)
    yield from loader.construct_yaml_map(node)


_Strict.add_constructor("tag:yaml.org,2002:map", _map)
_Strict.add_constructor("tag:yaml.org,2002:value", lambda _loader, node: str(node.value))  # "=", to PyYAML alone more
_Strict.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), [*"-+0123456789"])


def values_of(variation: str) -> dict[str, Any]:
    """What ci/VARIATION-values.yaml says."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{variation}-values.yaml").read_text(encoding="utf-8"))
    return loaded


def rendered(values: Mapping[str, Any], release: str = "shop") -> list[dict[str, Any]]:
    """Every object of the release; HelmError where Helm refuses."""
    texts = [text for name, text in _texts(values, release).items() if not name.endswith((".txt", ".tpl"))]
    manifests = [manifest for text in texts for manifest in yaml.load_all(text, Loader=_Strict)]  # nosec B506 - a safe one
    return [manifest for manifest in manifests if isinstance(manifest, dict)]


def notes(values: Mapping[str, Any]) -> str:
    """What Helm prints in the end."""
    (text,) = [text for name, text in _texts(values, "shop").items() if name.endswith("NOTES.txt")]
    return text


def _texts(values: Mapping[str, Any], release: str) -> dict[str, str]:
    with helm_python.Chart.load(str(CHART)) as chart:
        texts: dict[str, str] = chart.render(dict(values), name=release, namespace="messaging")
    return texts


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of a kind."""
    return [manifest for manifest in objects if manifest["kind"] == kind]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The router's pod."""
    (deployment,) = of_kind(objects, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Of its first container."""
    return {variable["name"]: variable.get("value", "") for variable in pod["containers"][0]["env"]}
