"""Tables of pages that come from the code: `make pages` writes them; tests fail if one is stale.

docs/policies.md and docs/policies.schema.json from the policy keys, the values of the chart's README from values.yaml
and its comments (`# -- …`), docs/data-dictionary.md from the pipeline's tables if that is installed.
"""

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from dlx_router import __version__
from dlx_router.config.language.keys import DEFINITION, Key
from dlx_router.config.policy_files.json_schema import schema, schema_text
from dlx_router.config.units import duration_text

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
CHART: Final = ROOT / "charts" / "dlx-router"


def policies() -> str:
    """Return docs/policies.md with the tables of this code."""
    text, defs = (DOCS / "policies.md").read_text(encoding="utf-8"), schema()["$defs"]
    for heading, name in (("A policy", "policy"), ("An attachment", "attachment"), ("A delayed exchange", "delayed")):
        rows = (f"| `{key}` | {_cell(of.get('description', ''))} |" for key, of in defs[name]["properties"].items())
        text = with_rows(text, heading, rows)
    keys = (f"| `{name}` | {_type(key.parse.schema)} | {_default(key)} | {_cell(key.doc)} |" for name, key in _keys())
    on = "| `on` | mapping | – | Keys that hold for one reason only: rejected, expired, maxlen, delivery_limit, "
    on += "application, application:NAME. Not those of the queue itself, which stand beside it: "
    on += f"{', '.join(_of_queue())}. |"
    return with_rows(text, "Keys of a definition", [*keys, on])


def chart() -> str:
    """Return the chart's README with its values and version."""
    values, text = (
        (CHART / "values.yaml").read_text(encoding="utf-8"),
        (CHART / "README.md").read_text(encoding="utf-8"),
    )
    comments = _comments(values)
    rows = (f"| `{name}` | {_shown(of)} | {comments.get(name, '')} |" for name, of in leaves(yaml.safe_load(values)))
    text = re.sub(r"(?<=[/ ]dlx-router:)\d[\w.-]*", __version__, text)
    return with_rows(text, "Values", rows)


def with_rows(text: str, heading: str, rows: Iterable[str]) -> str:
    """Return the text with other rows in the first table below a heading."""
    before, mark, after = text.partition(f"\n## {heading}\n")
    table = re.compile(r"(?<=\n)((?:\|.*\n){2})(?:\|.*\n)*")
    assert mark, f"no heading {heading!r}"
    return before + mark + table.sub(lambda head: head[1] + "".join(f"{row}\n" for row in rows), after, count=1)


def _keys() -> list[tuple[str, Key]]:
    return [*DEFINITION.items()]


def _of_queue() -> list[str]:
    return [name for name, key in _keys() if key.of_queue]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(key: Key) -> str:
    if key.says:
        return _cell(key.says)
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    if "delay" in key.name and isinstance(value, int) and not isinstance(value, bool):
        return f"`{duration_text(value)}`"
    return f"`{json.dumps(value)}`"


def _type(definition: Mapping[str, Any]) -> str:
    """Return a schema in a few words."""
    if "enum" in definition:
        return ", ".join(f"`{value}`" for value in definition["enum"])
    if "anyOf" in definition:
        words = [_type(option) for option in definition["anyOf"]]
        text = " ".join(str(option.get("pattern", "")) for option in definition["anyOf"])
        return "duration" if "ms|s|m|h" in text else "size" if "KiB" in text else " or ".join(words)
    if "const" in definition:
        return f"`{json.dumps(definition['const'])}`"
    if definition.get("type") == "array":
        return f"list of {_type(definition['items'])}"
    if definition.get("type") == "object":
        return f"`{{{', '.join(definition.get('properties', {}))}}}`"
    return {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}[definition["type"]]


def leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full name and default of each value of the chart."""
    for key, value in values.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, dict) and value and name not in {"policies.files", "resources"}:
            yield from leaves(value, name)
        else:
            yield name, value


def _comments(text: str) -> dict[str, str]:
    """Return the comment above each value from its `# -- ` on, by full name."""
    comments: dict[str, str] = {}
    path: list[str] = []
    comment = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("# -- "):
            comment = bare.removeprefix("# -- ")
        elif comment and bare.startswith("# "):
            comment += bare.removeprefix("#")
        elif bare and not bare.startswith("#") and ":" in bare:
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], bare.partition(":")[0]]
            comments[".".join(path)], comment = comment, ""
    return comments


def _shown(value: object) -> str:
    if isinstance(value, dict) and "default.yaml" in value:
        return "five attempts for everything"
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip().removesuffix("...").strip()
    return f"`{text}`"


def main() -> None:
    """Write all pages."""
    pages = {DOCS / "policies.md": policies(), DOCS / "policies.schema.json": f"{schema_text()}\n"}
    pages[CHART / "README.md"] = chart()
    if importlib.util.find_spec("pyspark") is not None:
        from dlx_router.spark.tables.page import page  # noqa: PLC0415 - pyspark may be missing

        pages[DOCS / "data-dictionary.md"] = page()
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
