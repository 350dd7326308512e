"""Compressed messages of the journal: one zstd frame each, made with a dictionary that never changes.

The dictionary holds words of ours and of nobody's letters, so it gives away nothing. What is read may have been written
by anybody: how large it becomes is looked at before anything is unpacked.
"""

from threading import local
from typing import TYPE_CHECKING, Final

from dlx_router.journal import dictionary

if TYPE_CHECKING:
    import zstandard

MAGIC: Final = b"\x28\xb5\x2f\xfd"  # RFC 8878; no line of JSON begins so
MAX_BYTES: Final = 4 << 20  # unpacked; a router writes at most 256 KiB, and a single event that is larger in format 1
LEVEL: Final = 1
MIN_MATCH: Final = 6  # of level 1, but with a smaller table: as small, and a third cheaper where many letters come
HASH_LOG: Final = 11
_KNOWN: Final = (0, dictionary.ID)  # 0: made with none


class FormatError(ValueError):
    """A message of the journal cannot be read; says why. None of its events is known."""


class PackageMissing(Exception):
    """There is nothing here that reads zstd; says what to do. Of the router's own parts it is none."""


class _Tools(local):
    """Contexts of zstd, which are of one thread; made when they are first used."""

    def __init__(self) -> None:
        try:
            import zstandard  # noqa: PLC0415 - workers of Spark read format 1 without it
        except ImportError:
            raise PackageMissing(
                "the journal is compressed, and the Python package zstandard is not here: install it, on every worker"
            ) from None
        words = zstandard.ZstdCompressionDict(dictionary.BYTES, dict_type=zstandard.DICT_TYPE_FULLDICT)
        how = zstandard.ZstdCompressionParameters.from_level(LEVEL, min_match=MIN_MATCH, hash_log=HASH_LOG)
        words.precompute_compress(compression_params=how)
        self.packer = zstandard.ZstdCompressor(compression_params=how, dict_data=words)
        self.unpacker = zstandard.ZstdDecompressor(dict_data=words)
        self.parameters, self.error = zstandard.get_frame_parameters, zstandard.ZstdError


_made: _Tools | None = None


def _tools() -> _Tools:
    global _made  # noqa: PLW0603 - made once, and not where nobody compresses
    if _made is None:
        _made = _Tools()
    return _made


def prepare() -> None:
    """Load what compresses now, and not with the first letter. Raises PackageMissing."""
    _tools()


def packed(text: bytes) -> bytes:
    """The text as one frame, which says how long it is."""
    return _tools().packer.compress(text)


def unpacked(body: bytes) -> bytes:
    """The text of a frame. Raises FormatError, and then has taken no memory for it; PackageMissing."""
    tools = _tools()
    try:
        frame: zstandard.FrameParameters = tools.parameters(body)
        if frame.dict_id not in _KNOWN:
            raise FormatError(f"compressed with dictionary {frame.dict_id}; {dictionary.ID} is known")
        if frame.content_size > MAX_BYTES:  # also where it does not say
            raise FormatError(f"a frame that becomes larger than {MAX_BYTES} bytes, or does not say how large")
        return tools.unpacker.decompress(body, allow_extra_data=False) if frame.content_size else b""
    except tools.error as error:
        raise FormatError(f"no whole zstd frame: {error}") from None
