"""The chart as Helm renders it: objects by kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "dlx-router"
VARIATIONS: Final = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))


def values_of(variation: str) -> dict[str, Any]:
    """What ci/VARIATION-values.yaml says."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{variation}-values.yaml").read_text(encoding="utf-8"))
    return loaded


def rendered(values: Mapping[str, Any], release: str = "shop") -> list[dict[str, Any]]:
    """Every object of the release; HelmError where Helm refuses."""
    texts = [text for name, text in _texts(values, release).items() if not name.endswith((".txt", ".tpl"))]
    manifests = [
        manifest for text in texts for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader)
    ]  # five times as fast
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
