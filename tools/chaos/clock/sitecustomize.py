"""A wall clock that can be moved from outside, for a Python process that finds this folder on its PYTHONPATH.

The file named by CHAOS_CLOCK holds a double: the seconds that `time.time()` and `time.time_ns()` are off. The monotonic
clock is left alone, as when somebody sets a machine's clock. Nothing in the program under test knows of it.
"""

import mmap
import os
import struct
import time
from pathlib import Path

if _file := os.environ.get("CHAOS_CLOCK"):
    with Path(_file).open("rb") as _opened:
        _offset = mmap.mmap(_opened.fileno(), 8, access=mmap.ACCESS_READ)
    _read, _time, _time_ns = struct.Struct("d").unpack_from, time.time, time.time_ns
    time.time = lambda: _time() + _read(_offset)[0]
    time.time_ns = lambda: _time_ns() + int(_read(_offset)[0] * 1e9)
