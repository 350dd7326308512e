"""What browsers load is in the package, released by others as it lies there, or ours."""

import json
import tomllib
from hashlib import sha256
from pathlib import Path

from dlx_router.console.assets import FOLDER, KINDS, Assets
from tests.docs.pages import ROOT

OURS = {"console.css", "mark.svg", "times.js"}


def test_each_file_of_others_is_the_released_one_and_told() -> None:
    listed = {
        entry["file"]: entry for entry in json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["files"]
    }
    assert {path.name for path in FOLDER.iterdir()} == OURS | {*listed} | {"manifest.json"}
    for name, entry in listed.items():
        assert sha256((FOLDER / name).read_bytes()).hexdigest() == entry["sha256"], name
        assert entry["version"] in entry["source"]
        assert entry["license"]


def test_an_address_changes_with_the_content() -> None:
    for name, address in Assets().addresses.items():
        assert sha256((FOLDER / name).read_bytes()).hexdigest()[:12] in address
        assert Path(name).suffix in KINDS


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name in OURS:
        text = (FOLDER / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text, name
        assert "@import" not in text, name


def test_the_wheel_has_the_pages() -> None:
    """hatch takes every file of the package, unless somebody excludes it: the client has a wheel of its own."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"] == {"packages": ["dlx_router"], "exclude": ["/dlx_router/client"]}
