"""Columns as PostgreSQL arrays, packed for the wire.

psycopg finds out the type of every element of every list. The columns of the log have fixed types, so they are packed
directly, at half the cost: 42 instead of 87 microseconds for the twelve columns of eight records, on every commit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_BYTEA, _TEXT, _TIMESTAMPTZ = 17, 25, 1184
_ARRAY = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_MOMENT = struct.Struct("!q")
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PackedArray(bytes):
    """An array in PostgreSQL's binary format. The statement must cast it to its type."""


class _PackedArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


def accept_packed_arrays(connection: psycopg.Connection[Any]) -> None:
    """Let statements of this connection take packed arrays as parameters."""
    connection.adapters.register_dumper(PackedArray, _PackedArrayDumper)


def byte_strings(column: Sequence[bytes]) -> PackedArray:
    """Pack a column as bytea[]."""
    return _packed(_BYTEA, column)


def texts(column: Iterable[str]) -> PackedArray:
    """Pack a column as text[]."""
    return _packed(_TEXT, [item.encode() for item in column])


def moments(column: Iterable[datetime]) -> PackedArray:
    """Pack a column as timestamptz[]."""
    return _packed(_TIMESTAMPTZ, [_MOMENT.pack((item - _POSTGRES_EPOCH) // _MICROSECOND) for item in column])


def _packed(element_type: int, items: Sequence[bytes]) -> PackedArray:
    # One dimension that counts from 1, and no element that is null.
    parts = [_ARRAY.pack(1, 0, element_type, len(items), 1)]
    length = _LENGTH.pack
    for item in items:
        parts.append(length(len(item)))
        parts.append(item)
    return PackedArray(b"".join(parts))
