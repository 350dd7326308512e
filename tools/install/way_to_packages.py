"""How this machine reaches packages: what a system unpacked beside it, or a build, has to see to install the same."""

import subprocess
import sys
from pathlib import Path
from typing import Final

SETTINGS: Final = (
    "/etc/apt/apt.conf",
    "/etc/apt/apt.conf.d",
    "/etc/pip.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
)
_ASK: Final = (sys.executable, "-m", "pip", "config", "list")


def named_by_pip() -> list[str]:
    """Every file and folder that pip's settings name here: pip in there must find the same."""
    words = subprocess.run(_ASK, capture_output=True, text=True, check=False).stdout.replace("'", " ").split()
    # pages of an index are in its folder `simple`, what they lead to lies beside that
    paths = [word.removeprefix("file://").rstrip("/").removesuffix("/simple") for word in words]
    return sorted({path for path in paths if path.startswith("/") and Path(path).exists()})


def is_data(path: str) -> bool:
    """A folder of packages: mounted, read-only; everything else is a setting: copied."""
    return Path(path).is_dir() and not path.startswith("/etc/")


def as_pip_conf() -> str:
    """Those settings as one file: what was said in variables is in it, but for who may not be told to an image."""
    lines = subprocess.run(_ASK, capture_output=True, text=True, check=False).stdout.splitlines()
    settings = dict(_setting(line) for line in sorted(lines, key=_is_variable) if "=" in line)
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


def _is_variable(line: str) -> bool:
    """Variables win over files, so they come last."""
    return line.startswith(":env:")


def _setting(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.removeprefix(":env:").rpartition(".")[2], value.strip("'").replace("\\n", " ")
