"""Dockerfile, compose file, rules and dashboards, each by the tool that reads it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dlx_router.config.api_access import tokens
from dlx_router.config.environment.settings import Settings
from tests.conftest import MUST
from tests.deploy.chart import CHART, ROOT
from tools.containers import compose

RULES: Final = CHART / "files" / "rules.yaml"
OPERATIONS: Final = ROOT / "docs" / "operations.md"


def tool(name: str) -> str:
    """A program of the machine or of this environment; without it the test is skipped, and fails in CI."""
    program = shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin") or shutil.which(name)
    if program is None:
        message = f"{name} is not here; make test ALL=1 installs it as root on Debian"
        if MUST:
            pytest.fail(message)
        pytest.skip(message)
    return program


def run(*argv: str) -> None:
    """Its output is the reason if it fails."""
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    """Every alert rule."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]


def test_prometheus_accepts_the_rules() -> None:
    run(tool("promtool"), "check", "rules", str(RULES))


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_not_else() -> None:
    run(tool("promtool"), "test", "rules", "tests/deploy/rules.test.yaml")


def test_every_alert_has_a_test() -> None:
    document = yaml.safe_load((ROOT / "tests/deploy/rules.test.yaml").read_text(encoding="utf-8"))
    tested = {
        case["alertname"] for suite in document["tests"] for case in suite["alert_rule_test"] if case["exp_alerts"]
    }
    assert {rule["alert"] for rule in alerts()} == tested


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    headings = re.findall(r"^### (\w+)$", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]


@pytest.mark.parametrize("path", sorted((CHART / "files/dashboards").glob("*.json")), ids=lambda path: path.name)
def test_panels_of_a_dashboard_do_not_overlap(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    assert not _overlaps([panel["gridPos"] for panel in document["panels"]])


def _overlaps(places: list[dict[str, int]]) -> list[tuple[int, int]]:
    def meet(a: dict[str, int], b: dict[str, int]) -> bool:
        across = a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
        return across and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]

    pairs = [(i, j) for i in range(len(places)) for j in range(i)]
    return [(i, j) for i, j in pairs if meet(places[i], places[j])]


def test_what_compose_mounts_is_there() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    sources = [
        volume.partition(":")[0]
        for service in document["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_compose_publishes_on_loopback_only() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    ports = [port for service in document["services"].values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_compose_waits_for_the_drain_before_it_kills() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    grace = document["services"]["router"].get("stop_grace_period", "10s")  # Docker's own
    assert int(grace.removesuffix("s")) > Settings.model_fields["drain_seconds"].default


def test_people_can_log_in_to_the_console_of_compose(tmp_path: Path) -> None:
    router = compose.load(ROOT)["services"]["router"]
    *shell, script = router["entrypoint"]
    environment = router["environment"]
    assert script.endswith("exec dlx-router run\n"), "which gets SIGTERM"
    assert environment["DLX_ROUTER_API_TOKENS_FILE"] == "/tmp/tokens.yaml" in script
    script = script.replace("/tmp/", f"{tmp_path}/").replace("exec dlx-router run", "")
    subprocess.run([*shell, script], env={"DLX_ROUTER_API_TOKEN": r"a\n$HOME-16-characters"}, check=True)
    (who,) = tokens.read(tmp_path / "tokens.yaml").items()
    assert who == (tokens.Tokens.digest(r"a\n$HOME-16-characters"), tokens.caller("me", tokens.Role.ADMIN))
    assert "index:/var/lib/dlx-router" in router["volumes"]


def test_commands_in_the_router_of_compose_have_the_token_that_the_router_knows() -> None:
    """`docker compose exec router dlx-router queues` was refused: the port is not on loopback, and they had none."""
    router = compose.load(ROOT)["services"]["router"]
    assert router["environment"]["DLX_ROUTER_API_TOKEN"] == "change-me-16-characters"
    assert "$DLX_ROUTER_API_TOKEN" in router["entrypoint"][-1]


def test_compose_puts_no_text_into_a_container_that_is_read_only() -> None:
    """`file` is the sole supported option, says Docker of configs and secrets there, and starts nothing."""
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    copied = {
        (kind, key)
        for kind in ("configs", "secrets")
        for key, entry in document.get(kind, {}).items()
        if "file" not in entry
    }
    for service in (service for service in document["services"].values() if service.get("read_only")):
        named = {
            (kind, entry["source"] if isinstance(entry, dict) else entry)
            for kind in ("configs", "secrets")
            for entry in service.get(kind, [])
        }
        assert not named & copied


def test_the_dockerfile_passes_its_linter() -> None:
    # DL3008 pins Debian packages to versions that the archive removes with the next security fix.
    run(tool("hadolint"), "--ignore", "DL3008", "--failure-threshold", "warning", "Dockerfile")


def test_the_image_gets_all_that_the_build_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in " ".join(copied).split():
        assert f"!{name.partition('/')[0]}" in allowed
        assert (ROOT / name).exists()
