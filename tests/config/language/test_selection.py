"""Many policies select as each of them alone would, and a thousand of them select at once."""

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.language.regex import Search, compiled, search_all
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Source, ordered

WORDS = st.sampled_from(["a", "b", "", "*", "#"])
NAMES = st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), min_size=1, max_size=6).map(".".join)
SELECTORS = st.one_of(
    NAMES.map(lambda text: Selector(SelectorKind.QUEUE, text)),
    st.lists(WORDS, min_size=1, max_size=6).map(lambda words: Selector(SelectorKind.MATCH, ".".join(words))),
    st.sampled_from(["^a", "b$", r"a\..*c", "^$", "(a|b)+", "."]).map(
        lambda text: Selector(SelectorKind.PATTERN, text, Search(compiled(text)))
    ),
)


def policies(selectors: list[Selector]) -> list[Policy]:
    return [
        Policy(str(at), selector, Source(str(at), "p", at), priority=at % 3) for at, selector in enumerate(selectors)
    ]


@given(st.lists(SELECTORS, max_size=12), NAMES)
def test_a_set_selects_what_its_policies_select_in_their_order(selectors: list[Selector], queue: str) -> None:
    written = policies(selectors)
    alone = tuple(policy for policy in ordered(written).policies if policy.selector.fits(queue))
    for policy_set in (ordered(written), ordered(written, search_all=search_all)):
        assert policy_set.chain(vhost="/", queue=queue, queue_type=None) == alone


def test_names_of_any_bytes_are_searched() -> None:
    odd = b"\xff.a".decode(errors="surrogateescape")
    policy_set = PolicySet(
        tuple(policies([Selector(SelectorKind.PATTERN, "a$", Search(compiled("a$")))])), search_all=search_all
    )
    assert len(policy_set.chain(vhost="/", queue=odd, queue_type=None)) == 1


def test_a_thousand_policies_and_ten_thousand_queues_are_resolved_within_a_second(tmp_path: Path) -> None:
    exact = [Selector(SelectorKind.QUEUE, f"orders.{at}.new") for at in range(500)]
    words = [Selector(SelectorKind.MATCH, f"*.{at}.#" if at % 2 else f"#.w{at}.*") for at in range(300)]
    texts = [rf"^mail\.[a-z]+\.{at}$" for at in range(200)]
    patterns = [Selector(SelectorKind.PATTERN, text, Search(compiled(text))) for text in texts]
    policy_set = ordered(policies([*exact, *words, *patterns]), search_all=search_all)
    began = time.process_time()
    for at in range(10_000):
        policy_set.resolve(
            vhost="/", queue=f"{('orders', 'mail')[at % 2]}.{at % 700}.new", reason="rejected", queue_type=None
        )
    assert time.process_time() - began < 1.0
