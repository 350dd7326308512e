"""Laws: durations and sizes come back as they were; whatever a file holds, only PolicyErrors is raised."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.config.findings import Report, nearest, shown
from dlx_router.config.language import yaml_tree
from dlx_router.config.language.keys import DEFINITION
from dlx_router.config.language.regex import Search, Substitute, compiled, substitute
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.config.units import MAX_DURATION_MS, MAX_SIZE_BYTES, duration_ms, duration_text, size_bytes, size_text

# Words of the language in any arrangement come closer to the parsers than plain noise.
WORDS = st.sampled_from([
    *("version: 1\n", "policies:\n", "- name: a\n", "  match: '#'\n", "  queue: q\n", "  pattern: '('\n"),
    *("  definition:\n", "attachments:\n", "- {queue: a}\n", "    on:\n", "      rejected: {}\n", "---\n", "...\n"),
    *("%YAML 1.1\n", "|\n", ">\n", "?", ": ", "- ", "[", "]", "{", "}", "&a ", "*a ", "!!int ", "<<: ", "'", '"', "\t"),
    *("\\x", "#", "\ufeff", "\x00", "é", "0", "-1", "~", "5s\n", "''\n", "true\n", "[rejected]\n", "{queue}\n"),
    *(f"    {key}: " for key in DEFINITION),
])  # fmt: skip


@given(st.integers(0, MAX_DURATION_MS))
def test_a_duration_comes_back_as_it_was(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms == duration_ms(ms)


@given(st.integers(0, MAX_SIZE_BYTES))
def test_a_size_comes_back_as_it_was(size: int) -> None:
    assert size_bytes(size_text(size)) == size == size_bytes(size)


@given(st.integers(0, 3_000_000), st.sampled_from([("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_a_decimal_duration_is_exact_or_refused(thousandths: int, unit: tuple[str, int]) -> None:
    text = f"{thousandths // 1000}.{thousandths % 1000:03}{unit[0]}"
    assert duration_ms(text) * 1000 == thousandths * unit[1]


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s s", "5sec", "٣s", "1e3s", "-0.5s", "0.0001s", "3651d", "1.s", ".5s", "5s\n"]
)
def test_what_is_no_duration_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"write"):
        duration_ms(text)


def _loads_or_explains(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "p.yaml").write_bytes(data)
        try:
            findings = load_policies(Path(folder)).warnings
        except PolicyErrors as error:
            findings = error.findings
        assert all(finding.line >= 1 and finding.message and finding.file for finding in findings)


@given(st.binary(max_size=300))
@example(b"version: 1\npolicies: [{name: a, match: '#', definition: {redelivery-delay: 00}}]")
@example(b"{" * 100_000)
@example(b"[" * 100_000)
@example(b"- " * 100_000)
@example(b"a: " * 1000)
@example(b'"\\x')
@example(b"\xff\xfea\x00")
def test_any_bytes_are_policies_or_policy_errors(data: bytes) -> None:
    _loads_or_explains(data)


@given(st.lists(WORDS, max_size=25).map("".join))
def test_any_arrangement_of_the_language_is_policies_or_policy_errors(text: str) -> None:
    _loads_or_explains(text.encode())


@given(st.text(max_size=80))
def test_any_value_of_any_key_is_policies_or_policy_errors(text: str) -> None:
    quoted = text.replace("'", "''")
    keys = "\n".join(f"    {key}: '{quoted}'" for key in DEFINITION)
    _loads_or_explains(
        f"version: 1\npolicies:\n- name: a\n  match: '#'\n  definition:\n{keys}\n".encode(errors="replace")
    )


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"] + [
        f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)}, ' * 9}]" for n in range(20)
    ]
    report = Report("p")
    assert yaml_tree.parse("\n".join(lines).encode(), report) is None
    assert {finding.code for finding in report.findings} == {"DLX003"}


@given(st.text(max_size=300))
def test_what_is_shown_of_a_file_is_short_and_printable(text: str) -> None:
    assert len(shown(text)) <= 62
    assert shown(text).isprintable()
    assert nearest(text, DEFINITION) is not None


@given(st.text(st.characters(codec=None), max_size=30))
def test_any_name_can_be_searched_and_rewritten_surrogates_too(name: str) -> None:
    name = name.encode(errors="replace").decode() + "\udcff"
    assert Search(compiled("^"))(name)
    assert substitute("$", "!")(name) == name + "!"
    assert isinstance(substitute("a", "b"), Substitute)
