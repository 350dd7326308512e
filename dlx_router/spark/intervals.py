"""The interval of a share. Pure."""

from math import sqrt
from typing import Final

Z: Final = 1.959963984540054  # 95 % of a normal distribution lie within so many deviations


def wilson(good: float, of: float, z: float = Z) -> tuple[float, float]:
    """The interval of a share; all of 0..1 where nothing was seen. Source: E. B. Wilson, JASA 22 (1927)."""
    if of <= 0:
        return 0.0, 1.0
    centre = (good + z * z / 2) / (of + z * z)
    half = z * sqrt(max(good * (of - good), 0.0) / of + z * z / 4) / (of + z * z)
    return max(0.0, centre - half), min(1.0, centre + half)
