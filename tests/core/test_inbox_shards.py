"""Inbox shards: each queue has one, a change of their number moves few, and an expression says the same."""

import re
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.inbox_shards import COUNTED, MOST_SHARDS, bits_of, hashed, shard_of
from dlx_router.core.names import Names
from dlx_router.provisioning import selector_regex
from tests.core.core_samples import law

NAMES = st.text(max_size=40) | st.from_regex(r"[a-z]{1,8}\.[a-z0-9]{1,8}", fullmatch=True)
SHARDS = st.integers(1, MOST_SHARDS)
NAMED = {
    hashed(f"{first}{other}"): f"{first}{other}" for first in "abcdefghijk" for other in "abcdefghijklmnopqrstuvwxyz"
}


@law
@given(NAMES, st.integers(1, MOST_SHARDS - 1))
def test_one_shard_more_takes_queues_of_one_other_and_moves_nothing_else(queue: str, shards: int) -> None:
    before, after = shard_of(queue, shards), shard_of(queue, shards + 1)
    assert 0 <= before < shards
    assert after in {before, shards}
    if after == shards:
        assert before == shards - (1 << shards.bit_length() - 1), "all that moves comes from one shard"


@law
@given(NAMES, SHARDS, SHARDS)
def test_fewer_shards_move_the_queues_only_of_those_that_go(queue: str, shards: int, other: int) -> None:
    few, many = sorted([shards, other])
    if shard_of(queue, many) < few:
        assert shard_of(queue, few) == shard_of(queue, many)


@law
@given(NAMES, SHARDS)
def test_the_expression_of_a_shard_fits_its_queues_and_no_others(queue: str, shards: int) -> None:
    fits = [re.search(selector_regex.of_shard(shard, shards), queue) is not None for shard in range(shards)]
    assert [shard for shard, does in enumerate(fits) if does] == [shard_of(queue, shards)]


@pytest.mark.parametrize("shards", range(1, MOST_SHARDS + 1))
def test_the_bits_of_a_shard_are_those_of_its_queues(shards: int) -> None:
    for hash_bits, shard in product(range(16), range(shards)):
        bits = bits_of(shard, shards)
        has = all(bool(hash_bits >> at & 1) == bit for at, bit in enumerate(bits))
        assert has == (shard_of(NAMED[hash_bits], shards) == shard)


@pytest.mark.parametrize("shards", [2, 4, 8])
@pytest.mark.parametrize(
    "names",
    [
        [f"orders.{number}" for number in range(1000)],
        [f"tenant-{number:04}.{what}" for number in range(250) for what in ("orders", "mails", "new", "paid")],
        [
            f"{tenant}.{other}"
            for tenant in ("shop", "eu", "us", "billing")
            for other in re.findall("[a-z]{3,}", __doc__)
        ],
    ],
    ids=["numbers", "tenants", "words"],
)
def test_a_power_of_two_of_shards_has_about_as_many_queues_each(names: list[str], shards: int) -> None:
    per_shard = Counter(shard_of(name, shards) for name in names)
    mean = len(names) / shards
    slack = 1.3 if len(names) == 1000 else 3.0  # of few names some share by chance
    assert all(mean / slack < per_shard[shard] < slack * mean for shard in range(shards)), per_shard


def test_an_expression_leaves_room_for_the_names() -> None:
    """RabbitMQ 4.3 takes 1,024 bytes."""
    lengths = {shards: len(selector_regex.of_shard(shards - 1, shards)) for shards in (2, 4, 8, 16)}
    assert max(lengths.values()) < 400, lengths
    assert lengths[4] < 200, lengths


def test_each_bit_has_half_of_the_letters_and_of_the_digits() -> None:
    for counted in COUNTED:
        for of in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
            assert abs(len(re.findall(f"[{counted}]", of)) - len(of) / 2) <= 1, (counted, of)


def test_the_shard_of_a_queue_is_for_ever() -> None:
    """Another hash would move every queue at the next apply."""
    shards = {name: shard_of(name, 16) for name in ("", "orders.new", "mails", "Q7", "заказы", "a-b_c.d")}
    assert shards == {"": 0, "orders.new": 15, "mails": 8, "Q7": 4, "заказы": 0, "a-b_c.d": 0}


def test_one_shard_is_the_inbox_alone_and_further_ones_are_numbered() -> None:
    assert Names("p").inboxes == ("p.inbox",)
    assert Names("p", 4).inboxes == ("p.inbox", "p.inbox.1", "p.inbox.2", "p.inbox.3")
    assert Names("p", 2).unnamed_inboxes[:2] == ("p.inbox.2", "p.inbox.3")
    for shards in (1, 4, MOST_SHARDS):
        names = Names("p", shards)
        assert names.inlets == {*names.inboxes, *names.unnamed_inboxes, "p.inbox.fifo"} == Names("p").inlets
