"""The two README commands on a machine that has nothing: a freshly unpacked Debian 12 with README's prerequisites.

    python -m tools.release.clean_machine --release trixie "make test-pure"     # other commands on another Debian
    python -m tools.release.clean_machine --pythons                             # `make test-pythons`

What is committed is cloned into it, so a forgotten file is missed here. The unpacked system is kept in the cache and
copied for each run. The way to packages is the host's: pip's and apt's settings, certificates, proxies. Root only.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.brokers.node import PRIVATE_MOUNTS
from tools.brokers.programs import BrokerError, cache, debootstrap
from tools.install.way_to_packages import SETTINGS, is_data, named_by_pip

ROOT: Final = Path(__file__).parents[2]
RELEASE: Final = "bookworm"
PREREQUISITES: Final = ("make", "git", "ca-certificates", "python3")  # README names the same
COMMANDS: Final = ("make demo", "make test")
PYTHONS: Final = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}  # 3.12, of the image, is in none

_ENTER: Final = """
root=$1; shift
while read -r path; do mount --bind "$path" "$root$path" && mount -o remount,bind,ro "$root$path" || exit 71; done
mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" && exec chroot "$root" "$@" </dev/null
"""


def main(argv: Sequence[str] | None = None) -> int:
    """0: all commands passed · 1: one failed, or no such machine can be made here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", default=COMMANDS, help="instead of those of the README")
    parser.add_argument("--release", default=RELEASE, help=f"of Debian (default {RELEASE})")
    parser.add_argument("--pythons", action="store_true", help="the tests without a broker on each Debian's Python")
    given = parser.parse_args(argv)
    if given.pythons:
        return max([_run(release, ["python3 --version", "make test-pure"]) for release in PYTHONS])
    return _run(given.release, given.commands)


def _run(release: str, commands: Sequence[str]) -> int:
    try:
        base = _base(release)
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    machine = Path(tempfile.mkdtemp(prefix="dlx-router-clean-"))
    try:
        subprocess.run(["cp", "-a", "--reflink=auto", f"{base}/.", str(machine)], check=True)
        named = named_by_pip()
        settings = [path for path in (*SETTINGS, *(name for name in named if not is_data(name))) if Path(path).exists()]
        for setting in settings:  # copied, never mounted: apt in there may write to them
            folder = machine / Path(setting).parent.relative_to("/")
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", setting, folder], check=True)
        paths = [path for path in named if is_data(path)]
        for path in paths:
            (machine / path.removeprefix("/")).mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(machine / "srv/dlx-router")], check=True)
        return max(_timed(machine, command, paths) for command in commands)
    finally:
        shutil.rmtree(machine, ignore_errors=True)


def _base(release: str) -> Path:
    if os.geteuid() != 0:
        message = "a clean machine needs root (mounts and chroot)"
        raise BrokerError(message)
    place = cache() / f"clean-{release}"
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        print(f"Unpacking Debian {release} ...", flush=True)
        debootstrap(release, place, *PREREQUISITES)
    return place


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("_proxy")}
    kept |= {key: os.environ[key] for key in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if key in os.environ}
    return {**kept, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def _timed(machine: Path, command: str, paths: list[str]) -> int:
    print(f"\n== {command}", flush=True)
    started = time.monotonic()
    inside = f"cd /srv/dlx-router && exec {command}"
    argv = [*PRIVATE_MOUNTS, "sh", "-c", _ENTER, "enter", str(machine), "sh", "-c", inside]
    text = "".join(f"{path}\n" for path in paths)
    code = subprocess.run(argv, input=text, text=True, env=_environment(), check=False).returncode
    print(f"== {command}: exit {code} after {time.monotonic() - started:.0f} s", flush=True)
    return min(code, 1)


if __name__ == "__main__":
    sys.exit(main())
