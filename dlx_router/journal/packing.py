"""Compressed messages of the journal: one zstd frame each, made with a dictionary that never changes.

The dictionary holds words of ours and of nobody's letters, so it gives away nothing; `tools/journal_dictionary.py` made
it. What is read may have been written by anybody: how large it becomes is looked at before anything is unpacked.
"""

from pathlib import Path
from threading import local
from typing import Final

import zstandard

MAGIC: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878; no line of JSON begins so
MAX_BYTES: Final = 4 << 20  # unpacked; a router writes at most 256 KiB, and a single event that is larger in format 1
DICTIONARY_ID: Final = 40_001  # RFC 8878 §5: 32768 to 2^31-1 are free for private use
DICTIONARY: Final = Path(__file__).with_name(f"dictionary-{DICTIONARY_ID}.zstd").read_bytes()
LEVEL: Final = 1
_KNOWN: Final = (0, DICTIONARY_ID)  # 0: made with none


class FormatError(ValueError):
    """A message of the journal cannot be read; says why. None of its events is known."""


class _Tools(local):
    """Contexts of zstd are of one thread."""

    def __init__(self) -> None:
        words = zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_FULLDICT)
        words.precompute_compress(level=LEVEL)
        self.packer = zstandard.ZstdCompressor(level=LEVEL, dict_data=words)
        self.unpacker = zstandard.ZstdDecompressor(dict_data=words)


_TOOLS: Final = _Tools()


def packed(text: bytes) -> bytes:
    """The text as one frame, which says how long it is."""
    return _TOOLS.packer.compress(text)


def unpacked(body: bytes) -> bytes:
    """The text of a frame. Raises FormatError, and then has taken no memory for it."""
    try:
        said = zstandard.get_frame_parameters(body)
        if said.dict_id not in _KNOWN:
            raise FormatError(f"compressed with dictionary {said.dict_id}; {DICTIONARY_ID} is known")
        if said.content_size > MAX_BYTES:  # also where it does not say
            raise FormatError(f"a frame that becomes larger than {MAX_BYTES} bytes, or does not say how large")
        return _TOOLS.unpacker.decompress(body, allow_extra_data=False) if said.content_size else b""
    except zstandard.ZstdError as error:
        raise FormatError(f"no whole zstd frame: {error}") from None
