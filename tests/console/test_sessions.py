"""Sessions end: by time, by hand, by number."""

from dataclasses import dataclass

from dlx_router.console.sessions import IDLE_S, LOGINS, LONGEST_S, MAX_CLIENTS, MOST, LoginLimit, Sessions


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_when_nobody_uses_it_and_at_the_end_of_a_day() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    key, made = sessions.begin("secret-token", {})
    while clock.now < LONGEST_S - IDLE_S:
        clock.now += IDLE_S - 1
        assert sessions.find(key) is made
    clock.now = LONGEST_S + 1
    assert sessions.find(key) is None
    idle, _ = sessions.begin("secret-token", {})
    clock.now += IDLE_S + 1
    assert sessions.find(idle) is None
    assert len(sessions) == 0


def test_what_a_page_asks_by_itself_keeps_no_session_alive() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    key, made = sessions.begin("", {})
    clock.now = IDLE_S - 1
    assert sessions.find(key, is_use=False) is made
    clock.now = IDLE_S + 1
    assert sessions.find(key) is None


def test_there_are_only_so_many_and_the_one_unused_longest_goes() -> None:
    sessions = Sessions(Clock())
    first, _ = sessions.begin("", {})
    second, _ = sessions.begin("", {})
    for _ in range(MOST - 2):
        sessions.begin("", {})
    assert sessions.find(first) is not None
    sessions.begin("", {})
    assert (sessions.find(first) is None, sessions.find(second) is None, len(sessions)) == (False, True, MOST)


def test_a_session_is_ended_at_once_and_nothing_tells_its_token() -> None:
    sessions = Sessions(Clock())
    key, made = sessions.begin("secret-token", {})
    assert "secret-token" not in repr(made)
    assert made.csrf not in repr(made)
    assert made.allows(made.csrf)
    assert not made.allows("")
    assert not made.allows("\udc80é")
    sessions.end(key)
    sessions.end(key)
    assert sessions.find(key) is None
    assert sessions.find("\udc80") is None


def test_an_address_may_try_some_times_and_then_slowly() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    assert [limit.allows("a") for _ in range(int(LOGINS) + 1)] == [True] * int(LOGINS) + [False]
    assert limit.allows("b")
    clock.now = 2.0
    assert [limit.allows("a"), limit.allows("a")] == [True, False]
    for number in range(MAX_CLIENTS + 10):
        limit.allows(str(number))
    assert len(limit._left) == MAX_CLIENTS
