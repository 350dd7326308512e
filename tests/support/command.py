"""`dlx-router ARGV` to its end: what a person types at a prompt, without the half second that each import takes.

Tests of how the program begins, and those that answer its questions, start an interpreter of their own instead.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.nursery import Forked

ROOT: Final = Path(__file__).parents[2]


def run_command(argv: list[str], env: Mapping[str, str], *, within_s: float = 120) -> subprocess.CompletedProcess[str]:
    """As subprocess.run has it: nothing to read, both outputs as text. `env`: all of its environment."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-command-") as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        process = Forked(argv, env, ROOT, output, errors)
        try:
            code = process.wait(within_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(argv, code, _text(output), _text(errors))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
