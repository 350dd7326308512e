"""The wall clock as it stands, for what is written down and compared by others: moments, ids, terms.

What waits or ages goes by service/inflight/clock, where a jump counts only once it has lasted.
"""

import time


def wall_ms() -> int:
    """Epoch ms."""
    return int(time.time() * 1000)
