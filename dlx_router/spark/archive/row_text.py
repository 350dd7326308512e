"""Rows of format 2 as text → their values as Arrow columns, cut out of the text without a Python object a row.

Only of rows whose text says that nothing is odd about them: `_PLAIN` is the form in which a router writes them.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dlx_router.spark.archive import lines

Mask = np.ndarray[Any, np.dtype[np.bool_]]

FURTHER: Final = (
    "draw", "error", "body_sha256", "body", "body_mode", "parent", "since_ms", "redacted", "serial", "possible_copy",
)  # fmt: skip
"""Further members that a plain row may have. `headers` and `body_values` are no columns that Arrow's reader knows."""
_OWN: Final = pa.schema(
    {
        "p": pa.struct({"message_id": pa.string(), "correlation_id": pa.string(), "timestamp_s": pa.int64()}),
        "m": pa.struct({name: lines.EVENT.field(name).type for name in FURTHER}),
    }
)
_WHOLE: Final = r"(?:0|-?[1-9][0-9]{0,17})"
_SECONDS: Final = "(?:0|-?[1-9][0-9]{0,11})"
_WORD: Final = r'"[^"\\{}\x00-\x1f]*"'  # without braces, so that `},{` is the end of `props`
_PROPS: Final = (
    rf'(?:"message_id":{_WORD})?,?(?:"correlation_id":{_WORD})?,?(?:"timestamp_s":(?:0|[1-9][0-9]{{0,17}}))?'
)
_PLAIN: Final = (
    rf'^\[(?:0|[1-9][0-9]{{0,3}}),"[0-9A-Za-z]+","[0-9A-Za-z]+",(?:0|[1-9][0-9]{{0,14}}),(?:null|{_WHOLE}),{_WHOLE},'
    rf"{_WHOLE},{_WHOLE},{_WHOLE},\[(?:{_SECONDS}(?:,{_SECONDS})*)?\],\{{{_PROPS}\}}(?:,\{{[^\n]*\}})?\]\n$"
)
_ODD: Final = rf'"(?:headers|body_values)":|:\s*null|{lines.SURROGATE.decode()}'  # null would win over what is shared
_NUMBERS: Final = (("number", 0), ("ts_ms", 3), ("due", 4), ("first", 5), ("last", 6), ("crc32", 7), ("size", 8))
_HEAD: Final = 9  # values before `times`
_TIMES_END: Final = "]"
_CLOSE: Final = b"}"[0]


def cut(rows: pa.StringArray) -> tuple[Mask, pa.Table | None]:
    """Which rows are plain; and those as columns: id, step, `times`, the numbers, `p` of props, `m` of further members.

    The rows' text is ASCII and each has its line's end. None: there are none.
    """
    is_plain = pc.match_substring_regex(rows, _PLAIN)
    is_plain = pc.and_(is_plain, pc.invert(pc.match_substring_regex(rows, _ODD)))
    plain = rows.filter(is_plain)
    table = _read(plain) if len(plain) else None
    if table is None:  # something in them is not what it says: they all go the slow way
        return np.zeros(len(rows), np.bool_), None
    fits = np.array(is_plain, np.bool_)
    finite = pc.is_finite(pc.struct_field(table["m"], "draw")).fill_null(True)  # noqa: FBT003 - what there is none of
    if not pc.all(finite).as_py():
        fits[np.flatnonzero(fits)[~np.array(finite, np.bool_)]] = False
        table = table.filter(finite)
    return fits, table


def _read(rows: pa.StringArray) -> pa.Table | None:
    """None: a text is no JSON after all, or a member is of another type, or of another name."""
    values = pc.split_pattern(rows, ",", max_splits=_HEAD).values
    every = np.arange(0, len(values), _HEAD + 1)
    columns: dict[str, Any] = {}
    for name, at in _NUMBERS:
        text = values.take(pa.array(every + at))
        text = pc.ascii_ltrim(text, "[") if name == "number" else text
        columns[name] = (_or_null(text) if name == "due" else text).cast(pa.int64())
    for name, at in (("id", 1), ("step", 2)):
        columns[name] = pc.ascii_trim(values.take(pa.array(every + at)), '"')
    ends = pc.split_pattern(values.take(pa.array(every + _HEAD)), _TIMES_END, max_splits=1).values
    pairs = np.arange(0, len(ends), 2)
    columns["times"] = _times(pc.ascii_ltrim(ends.take(pa.array(pairs)), "["))
    own = _own(ends.take(pa.array(pairs + 1)))
    if own is None or own.num_rows != len(rows):
        return None
    return pa.table({**columns, "p": own["p"], "m": own["m"]})


def _or_null(text: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(text, "null"), pa.scalar(None, pa.string()), text)


def _times(text: pa.StringArray) -> pa.ListArray:
    """Seconds with a comma between; "" for none."""
    apart = pc.split_pattern(text, ",")
    values = apart.values
    is_none = pc.equal(values, "")
    if not pc.any(is_none).as_py():
        return pa.ListArray.from_arrays(apart.offsets, values.cast(pa.int64()))
    there = np.concatenate(([0], np.cumsum(~np.asarray(is_none))))
    offsets = pa.array(there[np.asarray(apart.offsets)], pa.int32())
    return pa.ListArray.from_arrays(offsets, values.filter(pc.invert(is_none)).cast(pa.int64()))


def _own(rest: pa.StringArray) -> pa.Table | None:
    """`,{props}]` or `,{props},{more}]`, the line's end behind → both as columns."""
    named = pc.replace_substring(rest, "},{", '},"m":{', max_replacements=1)
    objects = pc.binary_replace_slice(named, 0, 1, '{"p":')
    start, end = objects.offset, objects.offset + len(objects)
    offsets = np.frombuffer(objects.buffers()[1], np.int32)[start : end + 1]
    text = np.frombuffer(objects.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].copy()
    text[offsets[1:] - offsets[0] - 2] = _CLOSE
    whole = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    asked = pj.ParseOptions(explicit_schema=_OWN, unexpected_field_behavior="error")
    try:
        return pj.read_json(pa.BufferReader(pa.py_buffer(text)), read_options=whole, parse_options=asked)
    except pa.ArrowInvalid:
        return None
