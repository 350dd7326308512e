"""What is said here of an expression is what the broker finds."""

import warnings
from base64 import b64encode
from itertools import product
from typing import Final

import pytest

from dlx_router.provisioning.selector_regex import fits, is_readable
from tools.brokers import Broker

ALIKE: Final = [
    ("a", "bab", True), ("^a", "ba", False), ("a$", "a\n", True), ("a$", "a\nb", False), (".", "\n", False),
    ("^orders\\.", "orders.x", True), ("(?i)^ORD", "orders", True), ("(?i:^ORD)x", "ordx", True), ("(?:)", "", True),
    ("^.{4}$", "über", False), ("^.{5}$", "über", True), ("^[äö]$", "ä", False), ("^[äö]{2}$", "ä", True),
    ("[]a]", "]", True), ("[^]a]", "a", False), ("a{2}b{1,}c{0,1}", "aab", True), ("a*+a", "aa", False),
    ("(?=b)(?!c)b(?<=b)(?<!c)", "b", True), ("(?P<n>a)", "a", True), ("\\x61\\.\\d", "a.1", True), ("", "x", True),
    ("(?>a+)b", "aab", True),
]  # fmt: skip
_ONLY_THERE: Final = r"""
^(?i)a a(?i)b (?<n>a) \Qa\E \h \v \z \Z [[:alpha:]] [[.a.]] a{,2} \pL \1 \012 (?x)a (?#no) (?|a) (?R) \K \x{41} (*ANY)a
[a&&b] [a--b] a{ (?-i)a (?(1)a) \B (?P=n) \e a** ( [ \
"""
_TOKENS: Final = r"""
a b ä . ^ $ | ( (?: (?= (?! (?<= (?<! (?> (?P<n> (?i: (?is) ) * + ? {2} {1,} {0,2} {,2} { } [ab] [^a] []a] [^]a] [a-c]
[ä-ö] [\w] [\]] [[:alpha:]] [ ] - \. \- \d \D \w \W \s \S \b \B \A \Z \h \v \Q \x61 \x \1 \n \t # A \R (?#x) [a&&b] [\b]
0 \0 \e (*ANY) \$ \\ (?-i: (?x) (?U) \K \C \pL
"""
_NAMES: Final = "a b ab aab ä A Ab ba.a bä Ä ö a-b a# 0 a0_ { a] ^a a{,2}"
ONLY_THERE, TOKENS = _ONLY_THERE.split(), [*_TOKENS.split(), "\n", "\\ "]
NAMES: Final = [*_NAMES.split(), "", "a\n", "a\nb", "a b", "é\xa0", "\x0ba", "\ta"]


@pytest.mark.parametrize(("expression", "name", "verdict"), ALIKE)
def test_what_both_read_alike_is_known(expression: str, name: str, verdict: bool) -> None:  # noqa: FBT001 - a table
    assert fits(expression, name) is verdict


@pytest.mark.parametrize("expression", ONLY_THERE)
def test_of_what_they_may_read_otherwise_nothing_is_said(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python warns of what it will come to read otherwise
        assert not is_readable(expression)
        assert fits(expression, "a") is None


@pytest.mark.parametrize("expression", ["\\w", "\\W", "\\s", "\\bx", "(?i)e", "a(?i:e)", "(?:\\S)"])
def test_what_counts_as_a_letter_beyond_ascii_only_the_broker_knows(expression: str) -> None:
    assert fits(expression, "ä") is None
    assert fits(expression, "e") is not None


@pytest.mark.slow
def test_what_is_said_here_the_broker_finds(broker: Broker) -> None:
    """Every pair of tokens, and each between two others, by the `re:run` that looks for policies."""
    if not broker.managed:
        pytest.skip("a broker given by URL evaluates nothing")
    drawn = [*map("".join, product(TOKENS, repeat=2)), *("a" + token + "b" for token in TOKENS)]
    readable = [expression for expression in drawn if is_readable(expression)]
    assert len(readable) > 1000
    there = _found_by(broker, readable)
    for expression, verdicts in zip(readable, there, strict=True):
        here = [fits(expression, name) for name in NAMES]
        assert len(verdicts) == len(NAMES), f"the broker refuses {expression!r}"
        wrong = [
            name
            for name, mine, its in zip(NAMES, here, verdicts, strict=True)
            if mine is not None and mine != (its == "1")
        ]
        assert not wrong, f"{expression!r}"


def _found_by(broker: Broker, expressions: list[str]) -> list[str]:
    """For each a digit for each name: whether the broker finds it; E where it does not take the expression."""

    def listed(texts: list[str]) -> str:
        data = b64encode(b"\xff".join(text.encode() for text in texts)).decode()
        return f'binary:split(base64:decode(<<"{data}">>), <<255>>, [global])'

    found = "case re:run(N, P, [{capture, none}]) of match -> $1; nomatch -> $0 end"
    line = f"case re:compile(P) of {{ok, _}} -> [{found} || N <- Ns]; _ -> [$E] end"
    printed = broker.rabbitmqctl(
        "eval", f'Ns = {listed(NAMES)}, io:format("~s", [lists:join($,, [{line} || P <- {listed(expressions)}])]).'
    )
    return "".join(letter for letter in printed if letter in "01E,").split(",")
