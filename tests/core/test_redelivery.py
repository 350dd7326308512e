"""When a message is sent again: pauses grow to an hour, nobody is hammered, and a day is enough."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.redelivery import GIVE_UP_MS, JITTER, LONGEST_MS, REST_MS, is_over, pause_ms, rest_ms


def test_pauses_triple_from_five_seconds_to_an_hour() -> None:
    assert [pause_ms(tries, 0.5) // 1000 for tries in range(1, 9)] == [5, 15, 45, 135, 405, 1215, 3600, 3600]


def test_a_receiver_that_asks_for_more_time_gets_it_but_not_for_ever() -> None:
    assert pause_ms(1, 0.5, 60_000) == 60_000
    assert pause_ms(5, 0.5, 1) == 405_000
    assert pause_ms(1, 0.5, 10**12) == LONGEST_MS


def test_an_endpoint_that_fails_rests_longer_each_time() -> None:
    assert [rest_ms(failures) for failures in range(9)] == [0, 1000, 2000, 4000, 8000, 16_000, 32_000, REST_MS, REST_MS]


@given(st.floats(0, 1))
def test_a_message_is_tried_some_thirty_times_in_a_day(draw: float) -> None:
    now, tries = 0, 0
    while not is_over(0, now):
        tries += 1
        now += pause_ms(tries, draw)
    assert 20 <= tries <= 40
    assert now < GIVE_UP_MS + LONGEST_MS * (1 + JITTER)


@given(st.integers(-5, 10**9), st.floats(0, 1), st.none() | st.integers(0, 10**12))
def test_a_pause_is_never_nothing_and_never_endless(tries: int, draw: float, asked: int | None) -> None:
    assert 4_000 <= pause_ms(tries, draw, asked) <= LONGEST_MS * (1 + JITTER)
