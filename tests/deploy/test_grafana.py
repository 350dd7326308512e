"""What Grafana reads in docker-compose.yml, against the keys that it knows: neither Debian nor PyPI has Grafana itself.

The keys are those of version 1 of its provisioning files, which its own readers hold as Go structures
(pkg/services/provisioning/{datasources,dashboards}/types.go). What it does not know it leaves out without a word.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import CHART, ROOT

jsonschema: Any = pytest.importorskip("jsonschema")
FOLDER: Final = ROOT / "deploy" / "grafana" / "provisioning"
_TEXT: Final = {"type": "string", "minLength": 1}
_YES: Final = {"type": "boolean"}
_NUMBER: Final = {"type": "integer"}


def _file(key: str, item: dict[str, Any], required: list[str]) -> dict[str, Any]:
    entry = {"type": "object", "properties": item, "required": required, "additionalProperties": False}
    fields = {"apiVersion": {"const": 1}, key: {"type": "array", "minItems": 1, "items": entry}}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


SCHEMAS: Final = {
    "datasources": _file(
        "datasources",
        {
            **dict.fromkeys(("name", "type", "url", "user", "database", "basicAuthUser", "uid", "orgName"), _TEXT),
            **dict.fromkeys(("basicAuth", "withCredentials", "isDefault", "editable"), _YES),
            **dict.fromkeys(("orgId", "version"), _NUMBER),
            "access": {"enum": ["proxy", "direct"]},
            "jsonData": {"type": "object"},
            "secureJsonData": {"type": "object"},
        },
        ["name", "type", "access", "url"],
    ),
    "dashboards": _file(
        "providers",
        {
            **dict.fromkeys(("name", "folder", "folderUid"), _TEXT),
            **dict.fromkeys(("editable", "disableDeletion", "allowUiUpdates"), _YES),
            **dict.fromkeys(("orgId", "updateIntervalSeconds"), _NUMBER),
            "type": {"const": "file"},
            "options": {"type": "object", "properties": {"path": _TEXT}, "required": ["path"]},
        },
        ["name", "type", "options"],
    ),
}
FILES: Final = [(kind, path) for kind in SCHEMAS for path in sorted((FOLDER / kind).iterdir())]


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda value: getattr(value, "name", value))
def test_provisioning_says_nothing_that_grafana_does_not_know(kind: str, path: Path) -> None:
    assert path.suffix in {".yaml", ".yml"}, "others are not read"
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), SCHEMAS[kind])


def test_grafana_reads_no_folder_that_we_did_not_check() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*SCHEMAS}


def test_a_key_that_grafana_leaves_out_would_be_found() -> None:
    (wrong,) = [yaml.safe_load(path.read_text(encoding="utf-8")) for kind, path in FILES if kind == "datasources"]
    wrong["datasources"][0]["is_default"] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMAS["datasources"])


def test_the_data_source_is_a_service_of_compose_and_dashboards_lie_where_they_are_mounted() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    (source,) = _provisioned("datasources")["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert any(mapping.endswith(f":{port}") for mapping in services[host]["ports"])
    mounts = {inside: own for own, inside, *_ in (volume.split(":") for volume in services["grafana"]["volumes"])}
    (provider,) = _provisioned("dashboards")["providers"]
    assert (ROOT / mounts[provider["options"]["path"]]).resolve() == (CHART / "files/dashboards").resolve()
    assert (ROOT / mounts["/etc/grafana/provisioning"]).resolve() == FOLDER.resolve()


def _provisioned(kind: str) -> dict[str, Any]:
    (path,) = (FOLDER / kind).iterdir()
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("path", sorted((CHART / "files/dashboards").glob("*.json")), ids=lambda path: path.name)
def test_a_dashboard_has_what_grafana_needs_to_save_it(path: Path) -> None:
    """A title (without one the file is refused), a uid of at most 40 signs that is no other's, and no id."""
    board = json.loads(path.read_text(encoding="utf-8"))
    others = [json.loads(file.read_text(encoding="utf-8"))["uid"] for file in path.parent.glob("*.json")]
    assert board["title"]
    assert len(board["uid"]) <= 40
    assert others.count(board["uid"]) == 1
    assert "id" not in board
    assert {"title", "panels", "schemaVersion", "templating", "time"} <= {*board}
