"""The install lines of the tutorials, run as written in a copy of this repository: what the pages import is there."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1200)]
ROOT: Final = Path(__file__).parents[2]
INSTALL: Final = re.compile(r"^```console install\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IMPORT: Final = re.compile(r"^(?:import|from) ([\w, .]+?)(?: import .*)?$", re.MULTILINE)
PAGES: Final = {"tour": ["docs/tour.md"], "start": ["docs/start.md", "docs/examples/start/orders.py"]}


@pytest.mark.parametrize("page", PAGES)
def test_after_the_install_lines_of_a_tutorial_its_programs_run(page: str, tmp_path: Path) -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES[page]]
    [lines] = INSTALL.findall(texts[0])
    modules = sorted({name.strip() for text in texts for names in IMPORT.findall(text) for name in names.split(",")})
    assert {"tour": "pika", "start": "aio_pika"}[page] in modules
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    script = f"set -eu\n{lines}\ndlx-router --help\npython -c 'import {', '.join(modules)}'\n"
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr
