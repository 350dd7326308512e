"""Debian packages that some tests need; as root, what is missing is installed.

    python -m tools.install.debian_packages prometheus

Elsewhere it says so and goes on: those tests are then skipped, or fail in CI.
"""

import os
import shutil
import sys

from tools.brokers.programs import install

PROGRAMS = {
    "prometheus": "promtool",
    "openjdk-17-jre-headless": "java",
    "netavark": "/usr/lib/podman/netavark",
    "aardvark-dns": "/usr/lib/podman/aardvark-dns",
}
"""Package → a program of it, where that is not its own name."""


def main(packages: list[str]) -> int:
    """0: as much as could be done is done."""
    missing = [name for name in packages if not shutil.which(PROGRAMS.get(name, name))]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing {', '.join(missing)} (no service is started) ...", flush=True)
        install(*missing)
    elif missing:
        print(f"Not here, and only root on Debian can install it: {', '.join(missing)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
