"""When a message that no receiver took is sent again: pauses that triple, an hour at most, until a day is over."""

from typing import Final

FIRST_MS: Final = 5_000
LONGEST_MS: Final = 3_600_000
GIVE_UP_MS: Final = 24 * 3_600_000
REST_MS: Final = 60_000  # an endpoint that fails is left in peace for so long at most, whatever waits for it
JITTER: Final = 0.2


def pause_ms(tries: int, draw: float, asked_ms: int | None = None) -> int:
    """The pause after so many tries that failed. `draw` in 0..1; `asked_ms`: what the receiver asked for."""
    plain = min(FIRST_MS * 3 ** min(max(tries, 1) - 1, 20), LONGEST_MS)
    pause = round(float(plain) * (1 + JITTER * (2 * draw - 1)))
    return pause if asked_ms is None else max(pause, min(asked_ms, LONGEST_MS))


def rest_ms(failures: int, asked_ms: int | None = None) -> int:
    """How long nothing is sent to an endpoint that failed so often in a row; what it asked for is for all of it."""
    rest = 0 if failures < 1 else min(1000 << min(failures - 1, 20), REST_MS)
    return rest if asked_ms is None else max(rest, min(asked_ms, LONGEST_MS))


def is_over(created_ms: int, now_ms: int) -> bool:
    """Whether nobody wants to know it any more."""
    return now_ms - created_ms >= GIVE_UP_MS
