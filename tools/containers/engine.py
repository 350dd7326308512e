"""What builds and runs containers: podman with a store of its own in the cache, else Docker.

As root on Debian podman needs no service, no registry and no settings of the machine: all of its files are named here.
docs/decisions/0088-containers-run-by-podman.md says why it is asked for runc, and what it cannot do.
"""

import json
import os
import resource
import shutil
import subprocess
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
        done = self.tried(*args, within_s=within_s)
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            message = f"{self.argv[0]} {' '.join(args[:6])} … ended with {done.returncode}:\n{said}"
            raise EngineError(message)
        return done.stdout

    def tried(self, *args: str, within_s: float = 120) -> subprocess.CompletedProcess[str]:
        """How a command ended, and what it printed."""
        argv, place = [*self.argv, *args], self.home  # podman's monitor leaves a file `oom` where it was begun
        return subprocess.run(
            argv, cwd=place, env=self.environment, capture_output=True, text=True, timeout=within_s, check=False
        )

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What the engine knows of an image, a container or a pod."""
        told = json.loads(self.run(kind, "inspect", name))
        one: dict[str, Any] = told[0] if isinstance(told, list) else told
        return one

    def has_image(self, name: str) -> bool:
        """It is here; no registry is asked."""
        return self.tried("image", "inspect", name).returncode == 0

    def build(self, context: Path, *, tag: str, target: str = "", within_s: float = 580) -> None:
        """The image of a Dockerfile. HEALTHCHECK is kept: podman's own format has none."""
        chosen = ["--target", target] if target else []
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
            self.tried("image", "prune", "--force", "--filter", "until=168h")  # layers that no build used for a week

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
    if os.geteuid() == 0 and shutil.which("apt-get"):
        debian_packages.main(list(PACKAGES))
        if shutil.which("podman") and shutil.which("runc"):
            return _podman(programs.cache().parent / "containers")
    if docker_answers():
        return Engine(("docker",))
    message = "no containers here: be root on Debian (podman is installed then), or start Docker"
    raise EngineMissingError(message)


def _podman(home: Path) -> Engine:
    (home / "networks").mkdir(parents=True, exist_ok=True)
    (home / "containers.conf").write_text(_SETTINGS.format(home=home, ulimits=_ulimits()), encoding="utf-8")
    (home / "registries.conf").write_text(_REGISTRIES, encoding="utf-8")
    argv = ("podman", "--root", str(home / "storage"), "--runroot", str(_RUN))
    # chroot: a build that begins no container needs none of the machine's rights for one
    options = ("--isolation", "chroot", "--format", "docker", "--layers", "--network", "host", "--pull=never")
    return Engine(argv, (*options, *_way_to_packages(home)), home)


def least_limits() -> dict[str, int]:
    """No more than this process has: without CAP_SYS_RESOURCE, as in many sandboxes, podman's own may not be set."""
    hard = {name: (resource.getrlimit(number)[1], enough) for name, (number, enough) in _LIMITS.items()}
    return {name: enough if limit < 0 else min(limit, enough) for name, (limit, enough) in hard.items()}


def _ulimits() -> str:
    return ", ".join(f'"{name}={limit}:{limit}"' for name, limit in least_limits().items())


def _way_to_packages(home: Path) -> list[str]:
    """A build finds packages as this machine does: by mounts, so that nothing of it is in the image."""
    named = way_to_packages.named_by_pip()
    # a build may write to /etc/ssl/certs itself, as Java's package does
    moved = {path: path if way_to_packages.is_data(path) else f"/run{path}" for path in named}
    text = way_to_packages.as_pip_conf()
    for path, inside in moved.items():
        text = text.replace(f" {path}\n", f" {inside}\n")
    (home / "pip.conf").write_text(text, encoding="utf-8")
    mounts = {path: path for path in _APT if Path(path).exists()} | moved | {str(home / "pip.conf"): "/etc/pip.conf"}
    volumes = [option for path, inside in mounts.items() for option in ("--volume", f"{path}:{inside}:ro")]
    leads = [option for pair in way_to_packages.proxies().items() for option in ("--build-arg", "=".join(pair))]
    return [*volumes, *leads]
