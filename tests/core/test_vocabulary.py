"""What is spelled once: reasons as metrics count them, states of a breaker, names of guards and delayed queues."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Props
from dlx_router.core.names import MAX_NAME_BYTES, Names
from dlx_router.core.record import encode, properties_of
from dlx_router.core.remembered import decode
from dlx_router.core.words import BROKER_REASONS, OTHER, counted
from tests.core.core_samples import KEY, amqp_text, law, queues, record

# Reasons


@pytest.mark.parametrize("reason", [*sorted(BROKER_REASONS), "unknown", "application"])
def test_reasons_that_we_know_are_counted_by_themselves(reason: str) -> None:
    assert counted(reason) == reason


def test_what_applications_say_is_counted_as_one_because_they_may_say_anything() -> None:
    assert counted("application:card.declined") == counted("application:\udcff") == "application"


@pytest.mark.parametrize("reason", ["", "Rejected", "rejected ", "applications", "xapplication:a", OTHER, "\udcff"])
def test_what_any_publisher_may_write_is_counted_together(reason: str) -> None:
    assert counted(reason) == OTHER


# Breakers


# Names


@law
@given(queues)
def test_the_lock_of_a_guard_is_known_by_its_whole_name(queue: str) -> None:
    names, lock = Names("eu"), Names("eu").guard(queue)
    assert names.is_guard(lock)
    others = (f"{lock}0", lock[:-1], lock.upper(), f"{lock}\n", f"a{lock}", "eu.guard.parking", "eu.guard.", "eu.guard")
    assert not any(map(names.is_guard, (*others, Names("us").guard(queue), Names("eu").in_use(queue))))


@law
@given(st.lists(queues, min_size=2, max_size=4, unique=True))
def test_each_queue_has_a_guard_and_a_lock_of_its_own_that_are_ours(some: list[str]) -> None:
    names = [of(queue) for of in (Names("eu").guard, Names("eu").in_use) for queue in some]
    assert len(set(names)) == 2 * len(some)
    assert all(Names("eu").is_own(name) and len(name) < MAX_NAME_BYTES for name in names)
    assert names == [of(queue) for of in (Names("eu").guard, Names("eu").in_use) for queue in some], (
        "the same each time"
    )


# Publications


# Properties in the record

texts = st.none() | amqp_text
small = st.none() | st.integers(0, 255)


@law
@given(st.builds(Props, texts, texts, texts, small, small))
def test_properties_from_bytes_are_written_as_the_record_writes_them(props: Props) -> None:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else text.encode(errors="surrogateescape")

    members: dict[str, Any] = props._asdict() | {"user_id": raw(props.user_id), "expiration": raw(props.expiration)}
    fragment = properties_of(
        members["message_id"], members["user_id"], members["expiration"], members["priority"], members["delivery_mode"]
    )
    written = encode(record(props=props, cc=None), KEY, 1 << 20)
    assert fragment.encode() in written
    assert bool(fragment) is (props != Props()) is (b'"props":' in written)
    assert decode(written, KEY).props == props
