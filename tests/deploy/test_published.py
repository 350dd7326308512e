"""What a release is where it is published: what its files name, that it can be built again, and who may do what."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import helm_python
import pytest
import yaml

from dlx_router import __version__
from tests.deploy.chart import ROOT
from tests.deploy.test_release import WORKFLOW, released
from tools.release.build import CHECKSUMS, ReleaseError, chart_version, linked, publish_at

REPOSITORY: Final = "Acme-Inc/dlx-router"
JOBS: Final[dict[str, Any]] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
ORDER: Final = ("check", "build", "sign", "image", "chart", "packages", "page")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the workflow builds it."""
    to = tmp_path_factory.mktemp("published") / "dist"
    return released(to, "--repository", REPOSITORY)


@pytest.mark.slow
def test_who_builds_it_again_by_hand_gets_files_that_its_checksums_are_of(published: Path, tmp_path: Path) -> None:
    """By the commands of the page."""
    page = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
    (options,) = re.findall(r'make release ARGS="(.+?)" && cd dist', page)
    (check,) = re.findall(r"^(sha256sum --check --ignore-missing) /where/", page, re.MULTILINE)
    again = released(tmp_path / "dist", *options.replace("OWNER/NAME", REPOSITORY).split())
    done = subprocess.run(
        [*check.split(), str(published / CHECKSUMS)], cwd=again, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert checked == {path.name for path in published.iterdir()} - {CHECKSUMS}


@pytest.mark.slow
def test_the_chart_asks_for_the_images_that_the_workflow_pushes(published: Path) -> None:
    file = published / f"dlx-router-{chart_version(__version__)}.tgz"
    values = {
        "amqp": {"existingSecret": "rabbit"},
        "pipeline": {"enabled": True, "archiveClaim": "archive"},
    }
    with helm_python.Chart.load_archive(file.read_bytes()) as chart:
        texts: dict[str, str] = chart.render(values, name="shop", namespace="messaging")
    asked = {
        image for text in texts.values() for image in re.findall(r"^ *-? *image: \"?([^\s\"]+)", text, re.MULTILINE)
    }
    assert asked == {f"ghcr.io/acme-inc/{name}:{__version__}" for name in ("dlx-router", "dlx-router-pipeline")}
    with tarfile.open(file) as tar:
        member = tar.extractfile("dlx-router/README.md")
        assert member is not None
        assert "| `image.repository` | `ghcr.io/acme-inc/dlx-router` |" in member.read().decode()


@pytest.mark.slow
def test_pages_of_packages_have_links_that_lead_somewhere_from_there(published: Path) -> None:
    for wheel in published.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
            text = message_from_bytes(file.read(name)).get_payload()
        assert isinstance(text, str)
        assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith(("https://", "#"))] == []
        assert "not published yet" not in text
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
        assert all(
            url.startswith(f"https://raw.githubusercontent.com/{REPOSITORY}/v{__version__}/") for url in pictures
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#part)", "[a](https://github.com/o/r/blob/v1/docs/a.md#part)"),
        ("[a](docs/)", "[a](https://github.com/o/r/tree/v1/docs)"),
        ("![a\nb](docs/a.svg)", "![a\nb](https://raw.githubusercontent.com/o/r/v1/docs/a.svg)"),
        ("[up](../LICENSE), [a](#part)", "[up](https://github.com/o/r/blob/v1/LICENSE), [a](#part)"),
        ("[a](https://a/b), [c](mailto:a@b)", "[a](https://a/b), [c](mailto:a@b)"),
    ],
)
def test_links_of_a_readme(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.md", "docs/a.svg", "LICENSE"):
        (tmp_path / name).touch()
    folder = tmp_path / "docs" if "../" in text else tmp_path
    assert linked(text, folder, tmp_path, "o/r@1") == expected


@pytest.mark.parametrize("repository", ["", "acme", "https://github.com/acme/router", "a/b/c", "a b/c"])
def test_a_place_that_is_no_repository_is_refused(repository: str, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="OWNER/NAME"):
        publish_at(repository, "1", tmp_path, [])


def test_a_link_to_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"docs/gone\.md"):
        linked("[a](docs/gone.md)", tmp_path, tmp_path, "o/r@1")


@pytest.mark.parametrize(
    ("version", "chart"),
    [("0.2.0", "0.2.0"), ("0.2.0.dev0", "0.2.0-dev0"), ("1.0.0rc1", "1.0.0-rc1"), ("10.20.30", "10.20.30")],
)
def test_a_chart_says_the_version_as_helm_takes_it(version: str, chart: str) -> None:
    assert chart_version(version) == chart


# -- the workflow -----------------------------------------------------------------------------------------------------


def test_each_job_waits_for_the_one_before_and_what_is_never_taken_back_comes_last() -> None:
    assert [*JOBS] == [*ORDER]
    assert [JOBS[name].get("needs") for name in ORDER] == [None, *ORDER[:-1]]


def test_who_runs_code_of_the_tree_or_of_packages_may_sign_and_publish_nothing() -> None:
    for name, job in JOBS.items():
        uses = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        runs = " ".join(step.get("run", "") for step in job["steps"])
        if re.search(r"\bmake\b|python|pip\b", runs):
            assert "permissions" not in job, name
        elif "actions/checkout" in uses:
            assert "docker/build-push-action" in uses, "what is built runs in containers"
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, name
    assert "permissions" not in JOBS["build"]
    assert JOBS["sign"]["permissions"] == {"id-token": "write", "attestations": "write"}


def test_whoever_publishes_waits_for_the_reviewers_of_an_environment() -> None:
    asked = {
        name: job.get("environment") for name, job in JOBS.items() if "write" in {*job.get("permissions", {}).values()}
    }
    assert asked == {"sign": None, "image": "release", "chart": "release", "packages": "pypi", "page": "release"}


def test_images_of_another_processor_are_built_by_what_emulates_it() -> None:
    uses = [step.get("uses", "").partition("@")[0] for step in JOBS["image"]["steps"]]
    assert uses.index("docker/setup-qemu-action") < uses.index("docker/build-push-action")


VERSION_STEP: Final = next(step["run"] for step in JOBS["check"]["steps"] if "GITHUB_REF_NAME" in step.get("run", ""))


@pytest.mark.skipif(shutil.which("bash") is None, reason="the workflow's shell")
@pytest.mark.parametrize(
    ("version", "tag", "code"),
    [("1.2.0", "v1.2.0", 0), ("1.2.0", "v1.2.1", 1), ("1.2.0.dev0", "v1.2.0.dev0", 1), ("1.2.0", "1.2.0", 1)],
)
def test_a_tag_is_the_version_of_a_release(version: str, tag: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "dlx_router.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    (tmp_path / "python").symlink_to(sys.executable)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-e", "-c", VERSION_STEP], env=env, cwd=tmp_path, check=False)
    assert done.returncode == code


def test_a_commit_of_another_branch_is_refused(tmp_path: Path) -> None:
    (step,) = (step["run"] for step in JOBS["check"]["steps"] if "GITHUB_SHA" in step.get("run", ""))
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")

    def git(*args: str) -> str:
        argv = ["git", *who, "-C", str(tmp_path), *args]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet")
    codes = []
    for branch in ("main", "other"):
        git("checkout", "--quiet", "-B", branch)
        git("commit", "--quiet", "--allow-empty", "--message", branch)
        if branch == "main":
            git("update-ref", "refs/remotes/origin/main", "main")
        env = {"PATH": "/usr/bin:/bin", "GITHUB_SHA": git("rev-parse", branch), "BRANCH": "main"}
        codes.append(subprocess.run(["bash", "-e", "-c", step], env=env, cwd=tmp_path, check=False).returncode)
    assert codes == [0, 1]
