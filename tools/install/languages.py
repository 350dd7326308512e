"""Go, and RabbitMQ's clients for Go and Java, for recipes of docs/clients.md: Debian packages, unpacked in a folder.

    python -m tools.install.languages

Nothing is installed: this machine's apt fetches them and checks their signatures; they are kept in the user's cache.
Elsewhere it says so and goes on: those tests are then skipped, or fail in CI. Java itself is asked for as `javac`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_CLIENTS: Final = ("golang-github-rabbitmq-amqp091-go-dev", "librabbitmq-client-java", "libslf4j-java")


def folder() -> Path:
    """Where they are unpacked; it is there only when it is complete."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dlx-router" / "languages"


def go() -> tuple[str, dict[str, str]] | None:
    """The program, and the environment in which it finds the client; None where it was never fetched."""
    programs = sorted(folder().glob("usr/lib/go-*/bin/go"))
    if not programs:
        return None
    home = {"GOROOT": str(programs[-1].parents[1]), "GOPATH": str(folder() / "usr/share/gocode"), "GO111MODULE": "off"}
    return str(programs[-1]), {**home, "GOCACHE": str(folder() / "go-cache"), "GOFLAGS": "-buildvcs=false"}


def java() -> tuple[str, str] | None:
    """The program, which compiles too, and the class path of the client; None where one of them is missing."""
    jars = [folder() / "usr/share/java" / name for name in ("amqp-client.jar", "slf4j-api.jar", "slf4j-nop.jar")]
    program = shutil.which("java") if shutil.which("javac") else None
    return (program, ":".join(map(str, jars))) if program and all(jar.exists() for jar in jars) else None


def main() -> int:
    """0: as much as could be done is done."""
    if folder().exists():
        return 0
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        print("Go and RabbitMQ's clients for Go and Java are fetched on Debian only", flush=True)
        return 0
    place = folder().with_name("languages.partial")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    compiler = _compiler()
    print(
        f"Fetching {compiler}, its sources and RabbitMQ's clients for Go and Java (nothing is installed) ...",
        flush=True,
    )
    packages = (compiler, compiler.replace("-go", "-src"), *_CLIENTS)
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=place, check=True)
    for package in place.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(place)], check=True)
        package.unlink()
    place.rename(folder())
    return 0


def _compiler() -> str:
    """The package that `golang-go` of this release stands for: golang-1.19-go, say."""
    output = subprocess.run(["apt-cache", "depends", "golang-go"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"Depends: (golang-[\d.]+-go)\n", output)
    if match is None:
        raise SystemExit("apt knows no golang-go: run `apt-get update` as root, then this again")
    return match[1]


if __name__ == "__main__":
    sys.exit(main())
