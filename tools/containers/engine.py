"""What builds and runs containers: podman with a store of its own in the cache, else Docker.

As root on Debian podman needs no service, no registry and no settings of the machine: all of its files are named here.
docs/decisions/0088-containers-run-by-podman.md says why it is asked for runc, and what it cannot do.
"""

import json
import os
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools.brokers import programs
from tools.brokers.elsewhere import docker_answers
from tools.install import debian_packages, way_to_packages

PACKAGES: Final = ("podman", "runc", "netavark", "aardvark-dns", "catatonit", "iptables")
_RUN: Final = Path("/run/dlx-router-containers")
_SETTINGS: Final = """
[containers]
default_ulimits = [{ulimits}]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[network]
network_backend = "netavark"
network_config_dir = "{home}/networks"
"""
_APT: Final = ("/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/resolv.conf")
_REGISTRIES: Final = 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n'
_WEEK_S: Final = 7 * 86_400
_LIMITS: Final = {"nofile": (resource.RLIMIT_NOFILE, 4096), "nproc": (resource.RLIMIT_NPROC, 4096)}


class EngineError(Exception):
    """A command of the engine failed; the text is what it printed."""


class EngineMissingError(EngineError):
    """No containers can be had on this machine: a reason to skip a test."""


@dataclass(frozen=True)
class Engine:
    """`argv` begins every command; `build_options` those of a build; `home` keeps images, None: the daemon does."""

    argv: tuple[str, ...]
    build_options: tuple[str, ...] = ()
    home: Path | None = None

    @property
    def is_podman(self) -> bool:
        """Pods can be played, and base images are made here."""
        return self.home is not None

    def run(self, *args: str, within_s: float = 120) -> str:
        """What a command printed; EngineError with all it said if it fails."""
        try:
            done = self.tried(*args, within_s=within_s)
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{self.argv[0]} {' '.join(args[:6])} … is not done after {within_s:.0f} s") from error
        if done.returncode:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            message = f"{self.argv[0]} {' '.join(args[:6])} … ended with {done.returncode}:\n{output}"
            raise EngineError(message)
        return done.stdout

    def tried(self, *args: str, within_s: float = 120) -> subprocess.CompletedProcess[str]:
        """How a command ended, and what it printed."""
        argv, place = [*self.argv, *args], self.home  # podman's monitor leaves a file `oom` where it was begun
        return subprocess.run(
            argv,
            cwd=place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            umask=0o022,  # which a build hands on to all that it writes
        )

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What the engine knows of an image, a container or a pod."""
        answer = json.loads(self.run(kind, "inspect", name))
        entry: dict[str, Any] = answer[0] if isinstance(answer, list) else answer
        return entry

    def has_image(self, name: str) -> bool:
        """It is here; no registry is asked."""
        return self.tried("image", "inspect", name).returncode == 0

    def build(
        self,
        context: Path,
        *,
        tag: str,
        target: str = "",
        time_s: int = 0,
        cached: bool = True,
        within_s: float = 1200,
    ) -> None:
        """The image of a Dockerfile. HEALTHCHECK is kept: podman's own format has none.

        By podman all that it writes has this time, so that two builds are equal. `cached`: layers of builds before are
        taken, of whatever time they are.
        """
        chosen = ["--target", target] if target else []
        chosen += [] if cached else ["--no-cache"]
        chosen += ["--timestamp", str(time_s)] if self.is_podman else []
        self.run("build", *self.build_options, *chosen, "--tag", tag, str(context), within_s=within_s)

    def remove(self, container: str) -> None:
        """Killed if need be, and gone."""
        self.tried("rm", "--force", *(["--time", "0"] if self.is_podman else []), container)

    def sweep(self) -> None:
        """What an earlier run left behind is gone; Docker's containers may be anybody's, and stay."""
        if self.is_podman:
            self.tried("unpause", "--all")
            self.tried("pod", "rm", "--all", "--force", "--time", "0")
            self.tried("rm", "--all", "--force", "--time", "0")
            self.tried("volume", "prune", "--force")
        if self.home:
            self._prune(self.home / "pruned")

    def _prune(self, mark: Path) -> None:
        """Once a week layers of no image go. Their age tells nothing: they have one time, so that builds are equal."""
        if not mark.exists():
            mark.touch()
        if time.time() - mark.stat().st_mtime > _WEEK_S:
            self.tried("image", "prune", "--force", within_s=300)
            mark.touch()

    @property
    def environment(self) -> dict[str, str]:
        """Settings of the machine do not reach podman, nor ours the machine's."""
        own = {}
        if self.home:
            files = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_REGISTRIES_CONF": "registries.conf"}
            own = {name: str(self.home / file) for name, file in files.items()}
        return {**os.environ, **own}


@cache
def engine() -> Engine:
    """podman, installed first if need be; else Docker; else EngineMissingError says what to do."""
    try:
        return _podman(programs.cache().parent / "containers")
    except EngineMissingError as error:
        if docker_answers():
            return Engine(("docker",))
        message = f"no containers here: {error}; or start Docker"
        raise EngineMissingError(message) from error


def _install() -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise EngineMissingError("be root on Debian, where podman is installed when it is wanted")
    try:
        debian_packages.main(list(PACKAGES))
    except programs.BrokerError as error:
        lacks = ", ".join(debian_packages.missing(PACKAGES))
        raise EngineMissingError(f"{lacks} missing, and not to be installed: {error}") from error


def _podman(home: Path) -> Engine:
    _install()
    (home / "networks").mkdir(parents=True, exist_ok=True)
    (home / "containers.conf").write_text(_SETTINGS.format(home=home, ulimits=_ulimits()), encoding="utf-8")
    (home / "registries.conf").write_text(_REGISTRIES, encoding="utf-8")
    argv = ("podman", "--root", str(home / "storage"), "--runroot", str(_RUN))
    # chroot: a build that begins no container needs none of the machine's rights for one
    options = ("--isolation", "chroot", "--format", "docker", "--layers", "--network", "host", "--pull=never")
    podman = Engine(argv, (*options, *_way_to_packages(home)), home)
    try:
        podman.run("info")
    except EngineError as error:
        message = f"podman does not run, for want of rights perhaps (to mount, for one): {error}"
        raise EngineMissingError(message) from error
    return podman


def least_limits() -> dict[str, int]:
    """No more than this process has: without CAP_SYS_RESOURCE, as in many sandboxes, podman's own may not be set."""
    hard = {name: (resource.getrlimit(number)[1], enough) for name, (number, enough) in _LIMITS.items()}
    return {name: enough if limit < 0 else min(limit, enough) for name, (limit, enough) in hard.items()}


def _ulimits() -> str:
    return ", ".join(f'"{name}={limit}:{limit}"' for name, limit in least_limits().items())


def _way_to_packages(home: Path) -> list[str]:
    """A build finds packages as this machine does: by mounts, so that nothing of it is in the image.

    Proxies podman hands on by itself.
    """
    named = way_to_packages.named_by_pip()
    # a build may write to /etc/ssl/certs itself, as Java's package does
    moved = {path: path if way_to_packages.is_data(path) else f"/run{path}" for path in named}
    text = way_to_packages.as_pip_conf()
    for path, inside in moved.items():
        text = text.replace(f" {path}\n", f" {inside}\n")
    (home / "pip.conf").touch()
    (home / "pip.conf").chmod(0o600)  # the URL of an index may have a password
    (home / "pip.conf").write_text(text, encoding="utf-8")
    mounts = {path: path for path in _APT if Path(path).exists()} | moved | {str(home / "pip.conf"): "/etc/pip.conf"}
    return [option for path, inside in mounts.items() for option in ("--volume", f"{path}:{inside}:ro")]
