"""The site: every page is in its navigation, and what it shows is what the tree has."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.pages import ROOT
from tools.pages import site_hooks


class _Loader(yaml.SafeLoader):
    """mkdocs.yml names a function of Python's; here its name is enough."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, _node: suffix)
CONFIG: Final[dict[str, Any]] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
EXTERNAL: Final = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages(part)]


def test_the_navigation_names_every_page_once() -> None:
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    written -= {path for path in written if path.startswith("decisions/0")}  # their index names them
    named = _pages(CONFIG["nav"])
    assert sorted(named) == sorted(written | {*site_hooks.OUTSIDE.values()})


@pytest.mark.parametrize(
    ("name", "line", "shown"),
    [
        ("README.md", "[why](why.md)", "[why](why.md)"),
        ("README.md", "[s](../SECURITY.md#keys)", "[s](project/security.md#keys)"),
        ("README.md", "[p](../policies/) and [d](decisions/)", "p and d"),
        ("README.md", "[s](policies.schema.json)", "[s](policies.schema.json)"),
        ("README.md", "`[s](../SECURITY.md)`", "`[s](../SECURITY.md)`"),
        ("README.md", "[a](#a) [w](https://example.com)", "[a](#a) [w](https://example.com)"),
        ("project/security.md", "[l](docs/limits.md)", "[l](../limits.md)"),
        ("project/helm-chart.md", "[l](../../docs/limits.md)", "[l](../limits.md)"),
        ("decisions/0032-docs-are-tested.md", "[k](0030-deploying.md)", "[k](0030-deploying.md)"),
        ("start.md", "![x](img/explain.svg)", "![x](img/explain.svg)"),
    ],
)
def test_links_lead_where_the_site_has_the_page(name: str, line: str, shown: str) -> None:
    assert site_hooks.adapted(line, name) == f"{shown}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```console run broker\n[a](b)\n```", "```bash\n[a](b)\n```"),
        ("so:\n* one\n* two", "so:\n\n* one\n* two"),
        ("* one\n  more\n* two", "* one\n  more\n* two"),
        ("```text\nso:\n* one\n```", "```text\nso:\n* one\n```"),
    ],
)
def test_markdown_of_code_hosts_is_read_as_they_read_it(text: str, shown: str) -> None:
    assert site_hooks.adapted(text, "start.md") == f"{shown}\n"


def test_it_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")]
    decisions = [*(ROOT / "docs/decisions").glob("0*.md")]
    assert len(pages) == len(_pages(CONFIG["nav"])) + len(decisions) + 1, "and the page for what is not there"
    assert [link for page in pages for link in EXTERNAL.findall(page)] == []
    home = (tmp_path / "index.html").read_text(encoding="utf-8").partition('id="all-pages"')[0]
    words = re.sub(r"<[^>]+>", "", home)
    assert [target for target in ("img/demo.svg", "start.html") if target not in home] == []
    assert [phrase for phrase in ("max-delivery-attempts: 5", "dlx-router letters show") if phrase not in words] == []
    shutil.rmtree(tmp_path)
