"""Packs values in PostgreSQL's binary format.

psycopg determines the type of every list element. The columns of the log have fixed types, so packing them directly
costs less than half, on every commit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain

_INT2, _INT8, _BYTEA, _TEXT, _TIMESTAMPTZ = 21, 20, 17, 25, 1184
_ARRAY = struct.Struct("!iiIii")
_pack_int4 = struct.Struct("!i").pack
_pack_int2 = struct.Struct("!h").pack
_NUMBER = struct.Struct("!q")
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def pack_bigint(value: int) -> bytes:
    """Pack a bigint."""
    return _NUMBER.pack(value)


def unpack_timestamptz(packed: bytes) -> datetime:
    """Return the time of a packed timestamptz."""
    return _POSTGRES_EPOCH + timedelta(microseconds=_NUMBER.unpack(packed)[0])


def pack_bytea_array(column: Sequence[bytes]) -> bytes:
    """Pack a column as bytea[]."""
    return _pack_array(_BYTEA, column)


def pack_text_array(column: Sequence[str]) -> bytes:
    """Pack a column as text[]. ASCII texts of equal length, such as ids, are packed all at once."""
    length = len(column[0]) if column else 0
    if 0 < length < 128 and len(set(map(len, column))) == 1:
        # Below 128 the length prefix is ASCII as well.
        packed = f"\0\0\0{chr(length)}".join(("", *column)).encode()
        if len(packed) == (length + 4) * len(column):
            return _header(_TEXT, len(column)) + packed
    return _pack_array(_TEXT, [item.encode() for item in column])


def pack_repetitive_text_array(column: Sequence[str]) -> bytes:
    """Pack a column as text[] whose values are mostly the same few."""
    if column and column.count(column[0]) == len(column):
        return _header(_TEXT, len(column)) + _pack_text(column[0]) * len(column)
    return _header(_TEXT, len(column)) + b"".join(map(_pack_text, column))


@lru_cache(maxsize=512)
def _pack_text(text: str) -> bytes:
    packed = text.encode()
    return _pack_int4(len(packed)) + packed


def pack_timestamptz_array(column: Iterable[datetime]) -> bytes:
    """Pack a column as timestamptz[]."""
    return _pack_array(_TIMESTAMPTZ, [_NUMBER.pack((item - _POSTGRES_EPOCH) // _MICROSECOND) for item in column])


def pack_bigint_array(column: Iterable[int]) -> bytes:
    """Pack a column as bigint[]."""
    return _pack_array(_INT8, [_NUMBER.pack(item) for item in column])


def pack_smallint_array(column: Iterable[int]) -> bytes:
    """Pack a column as smallint[]."""
    return _pack_array(_INT2, [_pack_int2(item) for item in column])


def _pack_array(element_type: int, items: Sequence[bytes]) -> bytes:
    header = _header(element_type, len(items))
    if items and len(set(map(len, items))) == 1:
        return _pack_int4(len(items[0])).join((header, *items))
    return b"".join(chain((header,), chain.from_iterable(zip(map(_pack_int4, map(len, items)), items, strict=True))))


def _header(element_type: int, size: int) -> bytes:
    # One dimension with lower bound 1 and no nulls; each element follows its length.
    return _ARRAY.pack(1, 0, element_type, size, 1)
