"""Write constraints.txt: the newest version of all that dlx-router and its development need, as pip resolves them.

Plain `name==version` lines and nothing else: no index, no local path, no hash of one platform's file.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXTRAS: Final = ("dev", "release", "spark-dev", "amqp10-dev", "clients-dev", "console-dev")
HEAD: Final = "# Made by `make constraints`. What CI and a fresh checkout install; the ranges are in pyproject.toml.\n"


def main() -> int:
    """0 written · 1 pip found no solution; the file is as it was."""
    options = "install --quiet --dry-run --ignore-installed --report -"
    ask = [sys.executable, "-m", "pip", *options.split(), f".[{','.join(EXTRAS)}]"]
    answer = subprocess.run(ask, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        return 1
    packages = [entry["metadata"] for entry in json.loads(answer.stdout)["install"]]
    lines = sorted(
        f"{package['name'].lower()}=={package['version']}\n"
        for package in packages
        if package["name"] not in {"dlx-router", "pip"}
    )
    (ROOT / "constraints.txt").write_text(HEAD + "".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
