"""docs/lint.md: each code has a section there, and each example is what its section says."""

import re
from pathlib import Path
from typing import Final

import pytest

from dlx_router.config import findings
from dlx_router.config.findings import UNREADABLE, Finding, Severity
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies

PAGE: Final = (Path(__file__).parents[3] / "docs" / "lint.md").read_text(encoding="utf-8")
SECTIONS: Final = {
    section[1]: section[2] for section in re.finditer(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
CODES: Final = sorted(
    {value for value in vars(findings).values() if isinstance(value, str) and re.fullmatch("DLX[0-9]{3}", value)}
)


def _findings(folder: Path, text: str) -> tuple[Finding, ...]:
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    try:
        loaded = load_policies(folder)
        loaded.require_served(["/"])
    except PolicyErrors as error:
        return error.findings
    return loaded.warnings


def _examples(code: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", SECTIONS[code], re.MULTILINE | re.DOTALL)


def test_every_code_has_a_section_and_there_is_no_other() -> None:
    assert list(SECTIONS) == CODES
    assert re.findall(r"\[(DLX\d+)\]\(#dlx\d+\)", PAGE) == CODES


@pytest.mark.parametrize("code", CODES)
def test_a_section_says_how_bad_it_is_what_it_means_and_the_way_out(code: str) -> None:
    assert re.match(r"\n(Error|Warning): \*\*[^*]+\*\*", SECTIONS[code])
    assert "\nWay out: " in SECTIONS[code]


# what only a broker shows (2xx) is planted in tests/provisioning
@pytest.mark.parametrize("code", sorted(code for code in CODES if code != UNREADABLE and code < "DLX200"))
def test_the_first_example_is_found_and_the_second_is_sound(code: str, tmp_path: Path) -> None:
    wrong, right = _examples(code)
    problems = _findings(tmp_path, wrong)
    assert {finding.code for finding in problems} == {code}
    severity = "Error" if problems[0].severity is Severity.ERROR else "Warning"
    assert SECTIONS[code].startswith(f"\n{severity}: ")
    assert all(f" {code}: " in str(finding) for finding in problems), "what is printed leads to the section"
    assert _findings(tmp_path, right) == ()


def test_a_folder_that_is_not_there_is_the_example_of_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors) as raised:
        load_policies(tmp_path / "nowhere")
    assert [finding.code for finding in raised.value.findings] == [UNREADABLE]
