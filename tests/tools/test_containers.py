"""What begins containers, without any: how the compose file is read, and what a build is told of this machine."""

from pathlib import Path

import pytest

from tests.deploy.chart import ROOT
from tools.containers import compose
from tools.containers.engine import Engine
from tools.install import way_to_packages

NONE = Engine(("false",))


def _file(folder: Path, text: str, env: str = "") -> compose.Project:
    (folder / "docker-compose.yml").write_text(text, encoding="utf-8")
    (folder / ".env").write_text(env, encoding="utf-8")
    return compose.Project(NONE, folder)


def test_all_that_our_compose_file_asks_for_is_known() -> None:
    project = compose.Project(NONE, ROOT)
    assert {*project.services} >= {"rabbitmq", "router", "shop", "prometheus", "grafana", "pipeline"}
    order = project.order()
    assert order.index("rabbitmq") < order.index("router") < order.index("shop")
    assert "pipeline" not in order


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(compose.ComposeError, match="service a has pid"):
        _file(tmp_path, "{name: x, services: {a: {image: b, pid: host}}}")


def test_variables_come_from_env_then_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A", raising=False)
    text = "{name: x, services: {a: {image: '${A:-c}-${B:-d}'}}}"
    assert _file(tmp_path, text, "# said\nA=1\n").image("a") == "1-d"


def test_a_router_of_the_compose_file_may_do_no_more_than_it_says() -> None:
    words = compose.Project(NONE, ROOT).options("router")
    for option in ("--read-only", "--read-only-tmpfs=false", "no-new-privileges"):
        assert option in words
    assert words[words.index("--cap-drop") + 1] == "ALL"


def test_a_build_finds_packages_as_this_machine_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{tmp_path}/simple")
    assert f"extra-index-url = file://{tmp_path}/simple\n" in way_to_packages.as_pip_conf()
    assert str(tmp_path) in way_to_packages.named_by_pip(), "what the pages lead to lies beside them"
