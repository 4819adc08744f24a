"""Converts protobuf messages to JSON by one rule, without hand-written field lists.

Every field is there under its proto name: an unset message is null, an empty list is []. Enums are lower-case words
without their prefix, timestamps are RFC 3339, a duration is a number of milliseconds under its name and `_ms`, 64-bit
integers are numbers, bytes that hold JSON are that JSON, other bytes are base64. Of a oneof only the set part appears.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

Json = Any
Read = Callable[[Any], Json]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(value: Timestamp) -> str:
    """Return RFC 3339 in UTC, with as many digits as the value has."""
    text, nanos = _second(value.seconds), value.nanos
    return f"{text}.{nanos:09d}".rstrip("0") + "Z" if nanos else text + "Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    """Return the text of a second. Cached, because making it costs more than the rest of a result."""
    # strftime does not pad the years before 1000 on every platform.
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def milliseconds(value: Duration) -> float:
    """Return the duration as milliseconds."""
    return value.seconds * 1000 + value.nanos / 1_000_000


def fragment(value: bytes) -> Json:
    """Return bytes of JSON as the JSON they are, without parsing them; empty bytes are null."""
    return orjson.Fragment(value) if value else None


def blob(value: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(value).decode()


def words(enum: EnumDescriptor) -> Mapping[int, str]:
    """Return the word of each value of an enum: TOOL_KIND_MCP_TOOL of ToolKind is mcp_tool."""
    zero = enum.values_by_number[0].name
    prefix = zero.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in enum.values}


class MessageJson:
    """Turns messages into JSON. `json_fields` names the bytes that hold JSON, `special` the types with a form of
    their own.

    The reader of a message type is built once: the object of an empty message, and a reader for each field. A message
    then costs only the fields that are set.
    """

    def __init__(self, json_fields: Collection[str], special: Mapping[str, Read] | None = None) -> None:
        self._json_fields = frozenset(json_fields)
        self._special = {**_WELL_KNOWN, **(special or {})}
        self._reads: dict[Descriptor, Read] = {}

    def convert(self, message: Message) -> dict[str, Json]:
        """Return the JSON object of a message."""
        kind: Any = message.DESCRIPTOR
        shown: dict[str, Json] = self._object(kind)(message)
        return shown

    def _object(self, kind: Descriptor) -> Read:
        """Return the reader of a message type."""
        known = self._reads.get(kind)
        if known is not None:
            return known
        unset: dict[str, Json] = {}
        fields: dict[FieldDescriptor, tuple[str, Read | None]] = {}

        def read(message: Message) -> dict[str, Json]:
            shown = unset.copy()
            for field, value in message.ListFields():
                key, reader = fields[field]
                shown[key] = value if reader is None else reader(value)
            return shown

        # Stored before its fields are read: a message may contain its own type.
        self._reads[kind] = read
        fields.update({field: (key_of(field), self._reader(field)) for field in kind.fields})
        unset.update(
            {key: self._unset(field, reader) for field, (key, reader) in fields.items() if not _of_several(field)}
        )
        return read

    @staticmethod
    def _unset(field: FieldDescriptor, read: Read | None) -> Json:
        if field.is_repeated:
            # Shared by all messages of the type: it is only written, never changed.
            return {} if entry_of(field) is not None else ()
        if field.has_presence:
            return None
        return field.default_value if read is None else read(field.default_value)

    def _reader(self, field: FieldDescriptor) -> Read | None:
        """Return the reader of a field; None if its value is JSON already."""
        if not field.is_repeated:
            return self._scalar(field)
        entry = entry_of(field)
        if entry is not None:
            each = self._scalar(entry.fields_by_name["value"])
            return lambda entries: {str(key): each(entries[key]) if each else entries[key] for key in sorted(entries)}
        read = self._scalar(field)
        return list if read is None else lambda items: [*map(read, items)]

    def _scalar(self, field: FieldDescriptor) -> Read | None:
        if field.message_type is not None:
            return self._special.get(field.message_type.full_name) or self._object(field.message_type)
        if field.enum_type is not None:
            known = words(field.enum_type)
            # A number that only a newer peer knows is shown as it is.
            return lambda number: known.get(number, number)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return fragment if field.full_name in self._json_fields else blob
        return None


def key_of(field: FieldDescriptor) -> str:
    """Return the name of a field in JSON."""
    is_duration = field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"
    return f"{field.name}_ms" if is_duration else field.name


def entry_of(field: FieldDescriptor) -> Descriptor | None:
    """Return the entry type of a map field; None for any other field."""
    kind = field.message_type
    return kind if kind is not None and kind.GetOptions().map_entry else None


def _of_several(field: FieldDescriptor) -> bool:
    """Return whether the field is part of a oneof, of which only the set part appears."""
    return field.containing_oneof is not None and len(field.containing_oneof.fields) > 1


_WELL_KNOWN: Mapping[str, Read] = {
    "google.protobuf.Timestamp": timestamp,
    "google.protobuf.Duration": milliseconds,
}
