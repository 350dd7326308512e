"""Which queues can be attended in which mode. The same on real brokers: tests/service/test_attachments.py."""

import pytest

from dlx_router.core.attending import (
    RAISE,
    QueueFacts,
    deadly_limit,
    delivery_limit,
    is_near,
    refusal,
    remedy,
    unknown_limit,
)

V310, V40, V43 = (3, 10), (4, 0), (4, 3)
MODES = ("inbox", "relay", "guard")
NO_LIMIT = {"x-delivery-limit": 2_147_483_647}


@pytest.mark.parametrize(
    ("facts", "version", "limit"),
    [
        (QueueFacts("classic"), V40, None),
        (QueueFacts("quorum"), V310, None),
        (QueueFacts("quorum"), V40, 20),
        (QueueFacts("quorum", {"x-delivery-limit": 5}), V310, 5),
        (QueueFacts("quorum", {"x-delivery-limit": 5}, {"delivery-limit": 3}), V43, 3),
        (QueueFacts("quorum", {"x-delivery-limit": 5}, {"delivery-limit": -1}), V43, 5),
        (QueueFacts("quorum", {"x-delivery-limit": -1}, {"delivery-limit": 5}), V40, 5),
        (QueueFacts("quorum", {"x-delivery-limit": -1}, {"delivery-limit": -2}), V40, None),
        (QueueFacts("quorum", {"x-delivery-limit": -1}, {"delivery-limit": 0}), V40, 0),
        (QueueFacts("quorum", {}, {"delivery-limit": -1}), V40, None),
        (QueueFacts("quorum", {"x-delivery-limit": -1}), V310, 0),
        (QueueFacts("quorum", {"x-delivery-limit": -1}, {"delivery-limit": 5}), V310, 0),
        (QueueFacts("quorum", NO_LIMIT), V43, None),
    ],
)
def test_how_many_returns_a_message_survives(facts: QueueFacts, version: tuple[int, ...], limit: int | None) -> None:
    assert delivery_limit(facts, version) == limit


@pytest.mark.parametrize(("arguments", "version", "raises"), [
    ({}, V310, True),
    ({}, V40, True),
    ({"x-delivery-limit": 5}, V310, False),
    ({"x-delivery-limit": 5}, V43, False),
    ({"x-delivery-limit": -1}, V310, False),
    ({"x-delivery-limit": -1}, V43, True),
    (NO_LIMIT, V40, True),
])  # fmt: skip
def test_no_policy_raises_what_an_argument_says(
    arguments: dict[str, int],
    version: tuple[int, ...],
    raises: bool,  # noqa: FBT001 - a column of the table
) -> None:
    advice = remedy(QueueFacts("quorum", arguments, {"delivery-limit": -1}), version)
    assert (advice == RAISE) == raises
    assert "delivery-limit" in advice


@pytest.mark.parametrize(
    ("mode", "facts", "version", "why"),
    [
        *((mode, QueueFacts("classic"), version, "") for mode in MODES for version in (V310, V43)),
        *((mode, QueueFacts("stream"), V43, "stream") for mode in MODES),
        *((mode, QueueFacts(exclusive=True), V43, "exclusive") for mode in MODES),
        ("inbox", QueueFacts("classic", {"x-max-priority": 5}), V43, ""),
        ("relay", QueueFacts("classic", {"x-max-priority": 5}), V43, "priority"),
        ("guard", QueueFacts("classic", {"x-max-priority": 5}), V43, "priority"),
        ("relay", QueueFacts("classic", {"x-single-active-consumer": True}), V43, ""),
        ("guard", QueueFacts("classic", {"x-single-active-consumer": True}), V43, "single active consumer"),
        ("guard", QueueFacts("quorum", NO_LIMIT), V40, "quorum queue of RabbitMQ 4.0"),
        ("guard", QueueFacts("quorum", NO_LIMIT), V310, "quorum queue of RabbitMQ 3.10"),
        ("guard", QueueFacts("quorum", NO_LIMIT), V43, ""),
        ("inbox", QueueFacts("quorum"), V40, "return number 21"),
        ("relay", QueueFacts("quorum"), V43, "return number 21"),
        ("relay", QueueFacts("quorum"), V310, ""),
        ("relay", QueueFacts("quorum", {}, {"dead-letter-exchange": "dlx"}), V43, ""),
        ("relay", QueueFacts("quorum", {"x-dead-letter-exchange": ""}), V43, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_attended_is_refused_with_the_reason(
    mode: str, facts: QueueFacts, version: tuple[int, ...], why: str
) -> None:
    reason = refusal(mode, facts, version, accepts_limit=False)
    assert why in reason
    assert bool(why) == bool(reason)


def test_only_a_limit_without_a_dead_letter_exchange_deletes() -> None:
    assert deadly_limit(QueueFacts("quorum"), V43) == 20
    assert deadly_limit(QueueFacts("quorum", {"x-dead-letter-exchange": "dlx"}), V43) is None
    assert deadly_limit(QueueFacts("classic"), V43) is None


@pytest.mark.parametrize(("version", "limit"), [(V310, None), (V40, 20), (V43, 20)])
def test_a_limit_that_nobody_told_is_the_brokers_own(version: tuple[int, ...], limit: int | None) -> None:
    assert unknown_limit(version) == deadly_limit(QueueFacts("quorum"), version) == limit


@pytest.mark.parametrize(
    ("returns", "limit", "near"),
    [(0, 20, False), (16, 20, False), (17, 20, True), (21, 20, True), (0, 2, False), (1, 2, True), (1, 0, True)],
)
def test_what_has_three_returns_left_is_near_its_end(returns: int, limit: int, near: bool) -> None:  # noqa: FBT001 - a table
    assert is_near(returns, limit) == near
