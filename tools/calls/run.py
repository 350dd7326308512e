"""Compare the calls and bytes per letter with the baseline: `make calls`. Needs no broker; a tree always has the same.

    PYTHONPATH=. python -m tools.calls.run [--json] [--write]

The baseline is tools/calls/baseline.json, which `--write` replaces. Another version of Python makes other calls, so it
is not compared.
Exit: 0 no number rose · 1 a number is higher than in the baseline.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.calls.letter_path import LETTERS, RUN, Way, as_data, measure

BASELINE: Final = Path(__file__).with_name("baseline.json")
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
TITLES: Final = {
    "first_calls": "first letter: calls",
    "short_calls": "next letter of a kind: calls",
    "shape_calls": "letter of a known shape: calls",
    "shape_bytes": "letter of a known shape: bytes sent",
    "run_calls": f"read of {RUN} letters: calls",
    "run_bytes": f"read of {RUN} letters: bytes sent per letter",
}


def costs(measurements: Mapping[str, Mapping[str, Way]]) -> dict[str, int]:
    """Return the highest cost among the measured letters, by the keys of `TITLES`."""
    fields = {"calls": "calls", "bytes": "sent_bytes"}
    found = {}
    for key in TITLES:
        way, unit = key.split("_")
        found[key] = max(getattr(ways[way], fields[unit]) for ways in measurements.values())
    return found


def increases(now: Mapping[str, int], baseline: Mapping[str, Any], python: str = PYTHON) -> list[str]:
    """Return the keys whose cost is higher than in the baseline; none if it is of another version of Python."""
    if baseline.get("python") != python:
        return []
    before = baseline["numbers"]
    return [key for key, cost in now.items() if cost > before.get(key, cost)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description="Compare the calls and bytes per letter with the baseline.")
    parser.add_argument("--json", action="store_true", help="print numbers and the measured paths as JSON")
    parser.add_argument("--write", action="store_true", help="replace the baseline by these numbers")
    options = parser.parse_args(arguments)
    ways = measure()
    now = costs(ways)
    if options.write:
        BASELINE.write_text(json.dumps({"python": PYTHON, "numbers": now}, indent=2) + "\n", encoding="utf-8")
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    higher = increases(now, baseline)
    if options.json:
        print(json.dumps({"python": PYTHON, "numbers": now, "ways": as_data(ways)}, indent=2))
        return int(bool(higher))
    print(f"{'':<42} {'now':>7} {'before':>7}")
    for key, title in TITLES.items():
        mark = " higher" if key in higher else ""
        print(f"{title:<42} {now[key]:>7} {baseline['numbers'].get(key, ''):>7}{mark}")
    print(f"Letters: {', '.join(LETTERS)}; the higher number counts. Python {PYTHON}.")
    return int(bool(higher))


if __name__ == "__main__":
    sys.exit(main())
