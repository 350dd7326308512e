"""Where a RabbitMQ program comes from: this machine's own package, or a Debian release unpacked beside it.

A release is unpacked once by debootstrap (root on a Debian-like machine), its signature checked, and kept outside the
source tree. Nothing here starts a node: see `broker_node`. Whoever adds a version adds one line to RELEASES.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RELEASES: Final = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
"""Version → the Debian release that carries it."""

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DEBIAN: Final = "http://deb.debian.org/debian"  # what is fetched is signed; see _KEYRING
_SCRIPTS: Final = Path("/usr/share/debootstrap/scripts")
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_HOMES: Final = (
    "/usr/lib/rabbitmq/lib/rabbitmq_server-*",
    "/opt/homebrew/Cellar/rabbitmq/*",
    "/usr/local/Cellar/rabbitmq/*",
)


class BrokerError(Exception):
    """A broker cannot be had or does not run; the text says what to do."""


class BrokerMissingError(BrokerError):
    """It cannot be had on this machine: a reason to skip a test, where one that does not start is a reason to fail."""


@dataclass(frozen=True, slots=True)
class Program:
    """One RabbitMQ that can be started: full version, folder of scripts, the root it runs under (None: this one)."""

    version: str
    sbin: Path
    root: Path | None = None


def cache() -> Path:
    """The folder that keeps unpacked releases: DLX_ROUTER_BROKERS, else the user's cache."""
    if given := os.environ.get("DLX_ROUTER_BROKERS"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dlx-router" / "brokers"


def installed() -> Program | None:
    """The newest RabbitMQ installed on this machine, whatever its version."""
    homes = [
        home for pattern in _HOMES for home in Path("/").glob(pattern[1:]) if (home / "sbin/rabbitmq-server").exists()
    ]
    programs = [Program(home.name.rpartition("-")[2], home / "sbin") for home in homes]
    return max(programs, key=lambda program: _numbers(program.version), default=None)


def unpacked(version: str) -> Program | None:
    """The program in the kept release, None where it was never (completely) unpacked."""
    root = cache() / version
    homes = sorted(root.glob(f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}.*"))
    if not homes:  # never fetched, or the release carries another version by now
        return None
    return Program(homes[-1].name.rpartition("-")[2], Path("/") / (homes[-1] / "sbin").relative_to(root), root)


def present(version: str) -> Program | None:
    """The program of this version that is here already; asks no network."""
    here = installed()
    if here and here.version.startswith(f"{version}."):
        return here
    return unpacked(version) if os.geteuid() == 0 else None


def provide(version: str) -> Program:
    """The program of this version, fetched first where that is possible; BrokerMissingError says why it is not."""
    if version not in RELEASES:
        message = f"RabbitMQ {version} is not one of {', '.join(RELEASES)}"
        raise BrokerMissingError(message)
    if here := present(version):
        return here
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        message = (
            f"RabbitMQ {version} is not here, and only root on Debian can fetch it "
            f"(python -m tools.brokers fetch {version})"
        )
        raise BrokerMissingError(message)
    if RELEASES[version] == _codename() and not installed():
        install("rabbitmq-server")
    else:
        unpack(version)
    if program := present(version):
        return program
    message = (
        f"Debian {RELEASES[version]} no longer carries RabbitMQ {version}: mend RELEASES in tools/brokers/programs.py"
    )
    raise BrokerMissingError(message)


def install(*packages: str) -> None:
    """Install Debian packages; no service is started, also where the machine would do so."""
    _run("apt-get", "update", "-q")
    with _no_services():
        _run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)


def unpack(version: str) -> None:
    """Unpack the release with RabbitMQ in it, signatures checked; the folder appears only when it is complete."""
    place = cache() / version
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want it at once
        if not place.exists():
            debootstrap(RELEASES[version], place, "rabbitmq-server")


def debootstrap(release: str, place: Path, *packages: str) -> None:
    """Unpack a minimal Debian `release` into `place`; on any failure `place` does not exist."""
    if missing := [name for name in ("debootstrap", "debian-archive-keyring") if not _is_installed(name)]:
        install(*missing)
    partial = place.with_name(f"{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    script = _SCRIPTS / release
    include = [f"--include={','.join(packages)}"] if packages else []
    flags = ["--variant=minbase", "--force-check-gpg", f"--keyring={_KEYRING}", *include]
    known = [] if script.exists() else [str(_SCRIPTS / "sid")]  # a release newer than this debootstrap
    _run("debootstrap", *flags, release, str(partial), mirror(), *known)
    shutil.rmtree(partial / "var/cache/apt/archives", ignore_errors=True)
    partial.rename(place)


def mirror() -> str:
    """The Debian mirror that this machine's apt uses; on Ubuntu, whose apt has none, Debian's own."""
    wanted = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
    lines = _output("apt-get", "indextargets", "--format", wanted, "Identifier: Packages").splitlines()
    for line in lines:
        origin, label, component, uri = line.split("|", 3)
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return uri
    return _DEBIAN


def _codename() -> str:
    try:
        release = Path("/etc/os-release").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    match = re.search(r'^VERSION_CODENAME="?(\w+)', release, re.MULTILINE)
    return match[1] if match and "ID=debian" in release else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _is_installed(package: str) -> bool:
    return subprocess.run(["dpkg", "--status", package], capture_output=True, check=False).returncode == 0


@contextmanager
def _no_services() -> Iterator[None]:
    """While this is open, a package that apt installs starts nothing (policy-rc.d 101: forbidden)."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def _environment() -> dict[str, str]:
    proxy = _output("apt-config", "shell", "proxy", "Acquire::http::Proxy").strip().removeprefix("proxy=").strip("'")
    known = {"http_proxy": proxy} if proxy else {}  # debootstrap does not read apt's settings
    return {**known, **os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def _run(*argv: str) -> None:
    done = subprocess.run(
        argv, env=_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        message = f"{' '.join(argv[:2])} failed ({done.returncode}):\n{tail}"
        raise BrokerError(message)


def _output(*argv: str) -> str:
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout
