"""Where in a JSON file something stands: found by reading it again, once something is wrong there.

Python's parser keeps no places, and the one that does is slow; so nobody pays for it whose file is sound.
"""

import json
from collections.abc import Callable
from json.decoder import JSONObject  # type: ignore[attr-defined]  # there since Python 2.6, not in the stubs
from json.scanner import py_make_scanner  # type: ignore[attr-defined]  # likewise
from typing import Any, Final

from dlx_router.config.dialects.import_result import Carried, ImportRefused, Parse

LARGEST_BYTES: Final = 4 << 20  # a larger file takes seconds; its objects are named in any case


class _Eye:
    """The line of the object that was looked at last."""

    def __init__(self) -> None:
        self.line = 1


class _Placed(dict[str, Any]):
    """An object that knows its line, and tells the eye when somebody looks."""

    line: int
    eye: _Eye

    def __getitem__(self, key: str) -> Any:
        self.eye.line = self.line
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.eye.line = self.line
        return super().get(key, default)


def line_of(read: Callable[[bytes, Parse], Carried], data: bytes) -> int:
    """The line, from 1, of the object for which this reader refuses the file; 1 where nobody can say."""
    if len(data) > LARGEST_BYTES:
        return 1
    eye = _Eye()
    try:
        read(data, lambda text: _placed(text, eye))
    except ImportRefused as error:
        return error.near.line if isinstance(error.near, _Placed) else eye.line
    except (ValueError, RecursionError):  # said already, by who read it first
        return 1
    return 1


def _placed(data: bytes, eye: _Eye) -> Any:
    text = data.decode("utf-8-sig")
    decoder: Any = json.JSONDecoder()
    newlines = _Lines(text)

    def parse_object(s_and_end: tuple[str, int], *rest: Any) -> tuple[_Placed, int]:
        found, end = JSONObject(s_and_end, *rest)
        placed = _Placed(found)
        placed.line, placed.eye = newlines.at(s_and_end[1]), eye
        return placed, end

    decoder.parse_object = parse_object
    decoder.scan_once = py_make_scanner(decoder)
    found: Any = decoder.raw_decode(text, len(text) - len(text.lstrip()))[0]
    return found


class _Lines:
    """Counts newlines on the way: places come nearly in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def at(self, index: int) -> int:
        if index >= self._at:
            self._line += self._text.count("\n", self._at, index)
        else:
            self._line -= self._text.count("\n", index, self._at)
        self._at = index
        return self._line
