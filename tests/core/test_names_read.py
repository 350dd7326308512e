"""Names as the broker reads them: whatever it takes for a name of ours is ours, and never a target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.client.declaration import Delivered, FromDeadLetterQueue, Words, header
from dlx_router.core.decision import decide
from dlx_router.core.names import MAX_NAME_BYTES, Names, as_read
from dlx_router.core.outcome import DeadLetter, Forward
from dlx_router.core.target import dead_letter_queue
from tests.core.core_samples import effective, law, letter

OWN = ("inbox", "inbox.fifo", "release", "state", "journal", "return", "delay.100", "delayed.x", "guard.0", "parking")
PIECES = ("\r", "\n", "\r\n", "\0", " ", "\t", "\x0b", "\x85", "\u2028", "\udcff", "é", "dlx-router", "DLX-ROUTER", ".")
any_name = st.lists(st.sampled_from([*PIECES, *OWN, "work", "q" * 255]) | st.text(max_size=3), max_size=8).map("".join)


def stripped(name: str) -> bytes:
    """What rabbit_channel.erl does: << <<C>> || <<C>> <= Bin, C =/= $\\n, C =/= $\\r >>."""
    return bytes(byte for byte in name.encode(errors="surrogateescape") if byte not in b"\r\n")


@law
@given(any_name)
def test_a_name_is_read_as_the_broker_reads_it(name: str) -> None:
    assert as_read(name).encode(errors="surrogateescape") == stripped(name)
    assert as_read(as_read(name)) == as_read(name)


@law
@given(any_name)
def test_a_name_is_ours_exactly_where_what_the_broker_reads_begins_with_our_prefix_and_a_dot(name: str) -> None:
    assert Names().is_own(name) == stripped(name).startswith(b"dlx-router.")
    assert Names().is_delayed(name) == stripped(name).startswith(b"dlx-router.delayed.")


@law
@given(any_name, st.sampled_from(["dlx-router", "dlx-router2", "dlx", "a.b"]))
def test_names_under_one_prefix_are_not_those_of_another(name: str, prefix: str) -> None:
    own = Names(prefix).is_own(name)
    assert not (own and Names(f"{prefix}2").is_own(name))


@law
@given(
    any_name.filter(bool), st.sampled_from(["DLQ.", "", "dlx-", "dl\nx-"]), st.sampled_from(["", ".dead", "\r.state"])
)
def test_whatever_a_dead_letter_queue_is_called_it_has_the_name_that_the_broker_reads_and_is_not_ours(
    failed: str, prefix: str, suffix: str
) -> None:
    policy = effective(dead_letter_queue_prefix=prefix, dead_letter_queue_suffix=suffix, retry_on=frozenset())
    name = dead_letter_queue(policy, failed)
    assert as_read(name) == name
    assert len(name.encode(errors="surrogateescape")) <= MAX_NAME_BYTES
    decision = decide(letter(failed_queue=failed), policy, 0, 0.0)
    if isinstance(decision, DeadLetter):
        assert decision.queue is not None
        assert not policy.ours.is_own(decision.queue)
    assert not isinstance(decision, Forward)


@pytest.mark.parametrize(
    "queue", ["dlx-router.parking", "dlx-router.\nparking", "\rdlx-router.inbox", "dlx-\nrouter.x"]
)
def test_the_client_reads_names_as_the_broker_does(queue: str) -> None:
    message = Delivered(queue=queue, exchange="", routing_key="k", headers={}, expiration=None, has_id=True)
    with pytest.raises(FromDeadLetterQueue):
        header(Words(reason="no-stock"), message, "dlx-router")
