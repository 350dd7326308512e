"""What begins containers, without any: how the compose file is read, and what a build is told of this machine."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.chart import ROOT
from tools.containers import compose
from tools.containers import engine as engines
from tools.containers.engine import Engine, EngineMissingError, least_limits
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


def test_a_container_gets_no_limit_that_this_process_may_not_set() -> None:
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(number)[1]
        assert hard < 0 or least_limits()[name] <= hard


def test_a_build_finds_packages_as_this_machine_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{tmp_path}/simple")
    assert f"extra-index-url = file://{tmp_path}/simple\n" in way_to_packages.as_pip_conf()
    assert str(tmp_path) in way_to_packages.named_by_pip(), "what the pages lead to lies beside them"


Programs = Callable[..., None]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Programs:
    """programs(name="its script") → this machine has these programs, and no others."""

    def only(**scripts: str) -> None:
        for name, script in scripts.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return only


def _why_no_containers() -> str:
    with pytest.raises(EngineMissingError) as raised:
        engines.engine.__wrapped__()
    return str(raised.value)


def test_where_nothing_can_begin_containers_it_says_what_to_do(programs: Programs) -> None:
    programs()
    advice = "no containers here: be root on Debian, where podman is installed when it is wanted; or start Docker"
    assert _why_no_containers() == advice


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone installs anything")
def test_what_podman_lacks_is_named_where_it_cannot_be_installed(programs: Programs) -> None:
    programs(apt_get="echo no network; exit 100", apt_config="exit 0", podman="exit 0")
    reason = _why_no_containers()
    assert "runc, " in reason
    assert "missing, and not to be installed" in reason
    assert "no network" in reason


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone is given podman")
def test_a_podman_that_may_not_run_says_so_before_anything_is_built(programs: Programs) -> None:
    here = dict.fromkeys(("apt_get", "apt_config", "runc", "catatonit", "iptables"), "exit 0")
    programs(podman="echo overlay: operation not permitted >&2; exit 125", **here)
    reason = _why_no_containers()
    assert "podman does not run" in reason
    assert "overlay: operation not permitted" in reason
