"""Delayed exchanges in policy files: what is read, and what is refused with file and line."""

from pathlib import Path

import pytest

from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.rights.permissions import Right, Setup, needed
from dlx_router.core.names import Names


def loaded(folder: Path, text: str) -> LoadedPolicies:
    (folder / "p.yaml").write_text(f"version: 1\ndelayed:\n{text}", encoding="utf-8")
    return load_policies(folder)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    first, second = loaded(
        tmp_path, "- {exchange: a.delayed, to: a}\n- {exchange: b.delayed, to: b, default: 5s, vhost: eu}\n"
    ).delayed
    assert (first.exchange, first.to, first.default_ms, first.vhost) == ("a.delayed", "a", 0, None)
    assert (second.exchange, second.to, second.default_ms, second.vhost) == ("b.delayed", "b", 5000, "eu")
    assert str(first.source).endswith("p.yaml:3")


@pytest.mark.parametrize(
    ("text", "code", "line", "said"),
    [
        ("- {exchange: a}", "DLX006", 3, "without to:"),
        ("- {to: a}", "DLX006", 3, "without exchange:"),
        ("- {}", "DLX006", 3, "without exchange: and to:"),
        ("- {exchange: a, to: ''}", "DLX007", 3, "must not be empty"),
        ("- {exchange: '', to: a}", "DLX007", 3, "must not be empty"),
        ("- {exchange: a, to: b, default: soon}", "DLX007", 3, "default"),
        ("- {exchange: a, to: b, default: -5s}", "DLX007", 3, "negative"),
        ("- {exchange: a, too: b}", "DLX005", 3, 'did you mean "to"?'),
        ("- orders", "DLX007", 3, "a mapping"),
        ("- {exchange: a, to: b}\n- {exchange: a, to: c}", "DLX140", 4, "is delayed already"),
        ("- {exchange: a, to: b, vhost: x}\n- {exchange: a, to: c}", "DLX140", 4, "is delayed already"),
        ("- {exchange: a, to: a}", "DLX141", 3, "leads back to itself"),
        ("- {exchange: a, to: b}\n- {exchange: b, to: a}", "DLX141", 3, '"a" → "b" → "a"'),
        ("- {exchange: dlx-router.inbox, to: a}", "DLX142", 3, "the router's own"),
        ("- {exchange: amq.topic, to: a}", "DLX142", 3, "the broker's own"),
        ("- {exchange: a, to: dlx-router.release}", "DLX142", 3, "the router's own"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(text: str, code: str, line: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors) as raised:
        loaded(tmp_path, text)
    problems = [(finding.code, finding.line) for finding in raised.value.findings if said in finding.message]
    assert problems == [(code, line)], str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "- {exchange: a, to: b, vhost: x}\n- {exchange: a, to: b, vhost: y}",
        "- {exchange: a, to: b}\n- {exchange: b, to: c}",
        "- {exchange: a, to: b, vhost: x}\n- {exchange: b, to: a, vhost: y}",
    ],
)
def test_what_never_meets_is_no_contradiction(text: str, tmp_path: Path) -> None:
    assert len(loaded(tmp_path, text).delayed) == 2


def test_a_vhost_that_is_not_served_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match=r'p.yaml:3.*delayed exchange "a" is for vhost "eu"'):
        loaded(tmp_path, "- {exchange: a, to: b, vhost: eu}").require_served(["/"])


def test_a_list_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match="delayed: expected a list"):
        loaded(tmp_path, "  exchange: a")


def test_only_what_it_means_makes_two_the_same(tmp_path: Path) -> None:
    exchange, other = (
        loaded(tmp_path, f"{space}- {{exchange: a, to: b}}\n").delayed[0] for space in ("", "# a line more\n")
    )
    assert isinstance(exchange, Delayed)
    assert exchange != other
    assert exchange.same_as(other)
    assert not exchange.same_as(loaded(tmp_path, "- {exchange: a, to: c}\n").delayed[0])


def test_each_right_that_it_needs_is_asked_for_and_no_other(tmp_path: Path) -> None:
    parsed = loaded(tmp_path, "- {exchange: a.delayed, to: work}\n")
    grant = needed(parsed.policies, (), Setup(Names()), "/", parsed.delayed)
    queue = Names().delayed("a.delayed")
    own = needed(parsed.policies, (), Setup(Names()), "/")
    asked = {(need.right, need.names) for need in grant.needs} - {(need.right, need.names) for need in own.needs}
    exchange, waits = r"a\.delayed", queue.replace(".", r"\.")
    assert asked == {
        (Right.CONFIGURE, exchange),
        (Right.READ, exchange),
        (Right.CONFIGURE, waits),
        (Right.WRITE, waits),
        (Right.READ, waits),
        (Right.WRITE, "work"),
    }
    looks = needed(parsed.policies, (), Setup(Names(), declare=False), "/", parsed.delayed)
    assert not any(need.right is Right.CONFIGURE for need in looks.needs)
