"""Reading what anybody may have written: JSON, and no more than JSON.

Python's `json` takes NaN, Infinity and numbers beyond all floats for numbers; neither SQLite nor an HTTP answer does.
"""

import json
from math import isfinite
from typing import Final


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is no number that JSON can tell again")
    return number


decoded: Final = json.JSONDecoder(parse_constant=_finite, parse_float=_finite).decode
"""The document of a text. Raises ValueError or RecursionError."""
