"""What a release is: built twice alike from the commit, complete, and what it says of itself is true.

The wheel as a user gets it: installed in a fresh environment, and run there.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import helm_python
import pytest
import yaml
from packaging.utils import canonicalize_name

from dlx_router import __version__
from tests.deploy.chart import CHART, ROOT, of_kind, pod_of, rendered
from tools.release.build import CHECKSUMS, chart_version

WORKFLOW: Final = ROOT / ".github/workflows/release.yml"
IS_CHECKOUT: Final = (ROOT / ".git").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"dlx_router", f"dlx_router-{__version__}.dist-info"}
    assert "dlx_router/py.typed" in names
    assert __version__ in wheel.name


@pytest.mark.slow
def test_a_fresh_environment_runs_it(wheel: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    pip, router = (str(tmp_path / "venv" / "bin" / name) for name in ("pip", "dlx-router"))
    _run(pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    assert __version__ in _run(router, "--version")
    assert "DLX_ROUTER_AMQP_URL" in _run(router, "run", "--help", COLUMNS="200")
    _run(router, "policy", "lint", str(ROOT / "policies"))


# -- all of a release -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the commit."""
    return released(tmp_path_factory.mktemp("release") / "dist")


def released(to: Path, *options: str, **more: str) -> Path:
    """Built from the commit. `more`: of the environment."""
    if not IS_CHECKOUT:
        pytest.skip("a release is built from a commit, and this is no git checkout")
    env = {**os.environ, **more}
    argv = [sys.executable, "-m", "tools.release.build", "--to", str(to), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return to


@pytest.mark.slow
def test_it_has_every_distribution_of_the_tree_the_chart_and_what_tells_of_them(release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    projects = [
        tomllib.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("**/pyproject.toml") if _own(path)
    ]
    for name in (project["project"]["name"].replace("-", "_") for project in projects):
        assert {f"{name}-{__version__}-py3-none-any.whl", f"{name}-{__version__}.tar.gz"} <= names
    others = {
        f"dlx-router-{chart_version(__version__)}.tgz",
        f"dlx-router-{__version__}.cdx.json",
        "SHA256SUMS",
    }
    assert others <= names
    assert len(names) == 2 * len(projects) + len(others)


def _own(path: Path) -> bool:
    return not {"build", ".venv", "dist"} & {*path.relative_to(ROOT).parts}


@pytest.mark.slow
def test_two_builds_of_a_commit_give_the_same_bytes(release: Path, tmp_path: Path) -> None:
    """By another name of the folder, in another time zone, by who lets nobody read what he writes."""
    umask = os.umask(0o077)
    try:
        again = released(tmp_path / "elsewhere" / "x", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1", LC_ALL="C")
    finally:
        os.umask(umask)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in release.iterdir()
    }


@pytest.mark.slow
def test_checksums_are_those_of_the_files(release: Path) -> None:
    _run("sha256sum", "--check", "--strict", CHECKSUMS, cwd=release)
    names = {line.split("  ")[1] for line in (release / CHECKSUMS).read_text(encoding="utf-8").splitlines()}
    assert names == {path.name for path in release.iterdir()} - {CHECKSUMS}


def test_the_chart_of_a_release_is_the_trees_and_helm_reads_it(release: Path) -> None:
    file = release / f"dlx-router-{chart_version(__version__)}.tgz"
    with tarfile.open(file) as tar:
        names = {member.name for member in tar}
        assert {(member.uid, member.gid, member.uname, member.mode & 0o022) for member in tar} == {(0, 0, "", 0)}
    folder = str(CHART.relative_to(ROOT))
    committed = _run("git", "ls-tree", "-r", "--name-only", "HEAD", folder, cwd=ROOT).splitlines()
    assert names == {path.removeprefix("charts/") for path in committed}
    with helm_python.Chart.load_archive(file.read_bytes()) as chart:
        assert chart.render({"amqp": {"existingSecret": "rabbit"}}, name="shop", namespace="messaging")


def test_the_bill_of_materials_names_every_package_once_with_the_version_of_the_constraints(release: Path) -> None:
    bill = _json(release / f"dlx-router-{__version__}.cdx.json")
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    components = {component["name"]: component for component in bill["components"]}
    assert len(components) == len(bill["components"])
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    chosen = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert {name: component["version"] for name, component in components.items()}.items() <= chosen.items()
    assert {"pamqp", "opentelemetry-sdk"} <= {*components}


def test_the_workflow_publishes_what_make_release_built_and_no_other() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    (made,) = [step["run"] for step in steps if "make release" in step.get("run", "")]
    assert made == 'make release ARGS="--repository $GITHUB_REPOSITORY"'
    assert workflow["permissions"] == {"contents": "read"}, "each job asks for what it needs"
    assert not [step for step in steps if "secrets." in json.dumps(step) and "GITHUB_TOKEN" not in json.dumps(step)]
    _run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW))


def test_what_the_workflow_uses_is_named_by_commits_which_nobody_can_move() -> None:
    lines = [line.strip() for line in WORKFLOW.read_text(encoding="utf-8").splitlines() if "uses: " in line]
    pinned = re.compile(r"(- )?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert lines
    assert [line for line in lines if not pinned.fullmatch(line)] == []
    tags = {line.partition("uses: ")[2].replace("@", " # ").split(" # ")[0]: line.partition("@")[2] for line in lines}
    assert len({*tags.items()}) == len({line.partition("uses: ")[2] for line in lines}), "one commit of each action"
    dependabot = WORKFLOW.parents[1] / "dependabot.yml"
    _run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.dependabot", str(dependabot))


def test_the_workflow_checks_with_what_ci_has() -> None:
    """Where CI is set, tests of Spark are no longer skipped without it, and types need its packages."""
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    commands = "\n".join(step.get("run", "") for step in workflow["jobs"]["check"]["steps"])
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    extras = {name for name in ("spark", "browser", "qpid") if re.search(rf"^make .*\b{name}\b", ci, re.MULTILINE)}
    assert extras == {"spark", "browser", "qpid"}
    assert all(re.search(rf"\bmake [a-z ]*\b{name}\b", commands) for name in extras)
    assert "prometheus" in commands, "promtool is of it"


def test_an_image_is_run_before_it_is_published() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["image"]["steps"]
    (loaded,) = [number for number, step in enumerate(steps) if step.get("with", {}).get("load")]
    (run,) = [number for number, step in enumerate(steps) if "docker run" in step.get("run", "")]
    (push,) = [number for number, step in enumerate(steps) if step.get("with", {}).get("push")]
    assert loaded < run < push
    assert steps[loaded]["with"]["target"] == steps[push]["with"]["target"]


def test_images_bear_the_names_that_the_chart_asks_for() -> None:
    """By the version, which is the tag without its v; a pod would wait for another one for ever."""
    values = {"amqp": {"existingSecret": "rabbit"}, "pipeline": {"enabled": True, "archiveClaim": "archive"}}
    objects = rendered(values)
    (job,) = of_kind(objects, "CronJob")
    pods = pod_of(objects), job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    asked = {pod["containers"][0]["image"] for pod in pods}
    image = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["image"]
    (tags,) = [step["with"]["tags"] for step in image["steps"] if step.get("with", {}).get("push")]
    (known,) = [step["run"] for step in image["steps"] if "VERSION=" in step.get("run", "")]
    assert "${GITHUB_REF_NAME#v}" in known
    published = {
        tags.replace("${{ matrix.name }}", target["name"]).replace("${{ env.VERSION }}", __version__)
        for target in image["strategy"]["matrix"]["include"]
    }
    assert {tag.rpartition("/")[2] for tag in published} == asked == {*_tags_of_the_dockerfile()}


def _tags_of_the_dockerfile() -> list[str]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return [line.split("--tag ")[1].split()[0] for line in text.splitlines() if "--tag " in line]


def test_a_source_archive_has_all_that_its_readme_asks_for() -> None:
    included = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = included["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/.env.example", "/.dockerignore", "/SECURITY.md", "/CONTRIBUTING.md"} <= {*names}
    assert all((ROOT / name.removeprefix("/")).exists() for name in names)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _run(*argv: str, cwd: Path | str = "/", **more: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **_index(), **more}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _index() -> dict[str, str]:
    """Where pip finds packages, and by which way, is the machine's business."""
    return {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("proxy")}
