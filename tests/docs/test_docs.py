"""Every page of Markdown names only what there is, and its links lead somewhere."""

import re
from typing import Final
from urllib.parse import unquote

import pytest

from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from tests.docs import known
from tests.docs.pages import PAGES, ROOT, Page, read

# The changelog names what was removed.
EVERY: Final = [
    pytest.param(read(path), id=str(path.relative_to(ROOT))) for path in PAGES if path.name != "CHANGELOG.md"
]
# What other programs call their own; a page may name it.
_FOREIGN: Final = re.compile(r"^(rabbitmq|process|python|erlang|http|go|kube)_")
every_page = pytest.mark.parametrize("page", EVERY)


@every_page
def test_links_lead_to_a_file_and_to_a_heading_in_it(page: Page) -> None:
    assert [link for link in page.links() if not re.match(r"[a-z]+:", link) and not _is_there(page, link)] == []


def _is_there(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.path.parent / unquote(path)).resolve() if path else page.path
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in read(target).anchors())


@every_page
def test_variables_are_settings_or_read_by_a_program_of_ours(page: Page) -> None:
    named = re.findall(r"\bDLX_ROUTER_[A-Z_]*[A-Z_]\*?", page.text)
    assert sorted({name for name in named if not _is_variable(name)}) == []


def _is_variable(name: str) -> bool:
    begin = name.removesuffix("*")
    known_ = known.variables()
    return name in known_ or (begin != name and any(variable.startswith(begin) for variable in known_))


@every_page
def test_metrics_are_shown_by_the_router(page: Page) -> None:
    prefixed = re.findall(r"\bdlx_router_\w+", page.text)
    short = [name for span in page.spans() for name in re.findall(r"\b[a-z][a-z_]*_total\b", span)]
    short += [
        series[1]
        for span in page.spans()
        if (series := re.match(r"([a-z_]+)\{[a-z, _]+\}$", span)) and "_" in series[1]
    ]
    wanted = {
        *prefixed,
        *(f"dlx_router_{name.removeprefix('dlx_router_')}" for name in short if not _FOREIGN.match(name)),
    }
    assert sorted(wanted - known.metrics()) == []


@every_page
def test_commands_and_their_options_exist(page: Page) -> None:
    assert [wrong for line in page.commands() if (wrong := known.wrong_command(line))] == []


@every_page
def test_targets_of_make_exist(page: Page) -> None:
    asked = {target[1] for line in page.commands() if (target := re.match(r"make ([a-z][a-z-]*)", line))}
    assert sorted(asked - known.make_targets()) == []


@every_page
def test_codes_that_are_named_exist(page: Page) -> None:
    assert sorted({*re.findall(r"\bDLX[0-9]{3}\b", page.text)} - known.codes()) == []


@pytest.mark.parametrize(
    "page", [page for page in EVERY if page.id != "docs/lint.md"]
)  # its examples are wrong, and tested
def test_policies_in_a_page_are_sound(page: Page, tmp_path_factory: pytest.TempPathFactory) -> None:
    for block in page.blocks:
        if block.info[:1] != ("yaml",) or not re.search(r"^(policies|attachments|delayed):", block.text, re.MULTILINE):
            continue
        folder = tmp_path_factory.mktemp("policies")
        (folder / "p.yaml").write_text(block.text, encoding="utf-8")
        try:
            load_policies(folder)
        except PolicyErrors as error:
            pytest.fail(f"{page.name}:{block.line}: {error}")


def test_every_page_of_docs_is_listed_and_the_readme_leads_there() -> None:
    listed = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in read(ROOT / "docs/README.md").links()}
    pages = {*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "examples").glob("*.md")} - {ROOT / "docs/README.md"}
    assert sorted(path.name for path in pages - listed) == []
    assert "docs/README.md" in read(ROOT / "README.md").links()


def test_the_checks_see_what_is_wrong() -> None:
    assert known.wrong_command("dlx-router policy lnit policies/")
    assert known.wrong_command("DLX_ROUTER_POLICIES=p dlx-router policy explain q --polices p")
    assert not known.wrong_command("dlx-router policy explain q --policies p | less")
    assert not _is_variable("DLX_ROUTER_PREFETHC")
    assert _is_variable("DLX_ROUTER_TLS_*")
    assert not _is_there(read(ROOT / "README.md"), "docs/limits.md#nothing-of-the-kind")
    assert not _is_there(read(ROOT / "README.md"), "docs/limts.md")
