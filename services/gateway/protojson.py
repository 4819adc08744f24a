"""Messages of the contract as JSON, by one rule and without a hand-written list of their fields.

Every field is there under its proto name: an unset message is null, an empty list is []. Enums are lower-case words
without their prefix, timestamps are RFC 3339, a duration is a number of milliseconds under its name and `_ms`, 64-bit
integers are numbers, bytes that hold JSON are that JSON, other bytes are base64. Of a oneof only the set part appears.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

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
    text = (_EPOCH + timedelta(seconds=value.seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    # strftime does not pad the years before 1000 on every platform.
    text = text.rjust(19, "0")
    return f"{text}.{value.nanos:09d}".rstrip("0").rstrip(".") + "Z" if value.nanos else text + "Z"


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
    """Turns messages into JSON. The plan of each type is made once; `json_fields` names the bytes that hold JSON."""

    def __init__(self, json_fields: Collection[str]) -> None:
        self._json_fields = frozenset(json_fields)
        self._plans: dict[str, list[Callable[[Message, dict[str, Json]], None]]] = {}

    def __call__(self, message: Message) -> dict[str, Json]:
        """Return the JSON object of a message."""
        shown: dict[str, Json] = {}
        for step in self._plan(cast(Descriptor, message.DESCRIPTOR)):
            step(message, shown)
        return shown

    def _plan(self, descriptor: Descriptor) -> list[Callable[[Message, dict[str, Json]], None]]:
        plan = self._plans.get(descriptor.full_name)
        if plan is None:
            plan = self._plans[descriptor.full_name] = [self._step(field) for field in descriptor.fields]
        return plan

    def _step(self, field: FieldDescriptor) -> Callable[[Message, dict[str, Json]], None]:
        name, key, read = field.name, self._key(field), self._reader(field)
        if field.is_repeated:
            return lambda message, shown: shown.__setitem__(key, read(getattr(message, name)))
        if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
            return lambda message, shown: (
                shown.__setitem__(key, read(getattr(message, name))) if message.HasField(name) else None
            )
        if field.has_presence:
            return lambda message, shown: shown.__setitem__(
                key, read(getattr(message, name)) if message.HasField(name) else None
            )
        return lambda message, shown: shown.__setitem__(key, read(getattr(message, name)))

    def _reader(self, field: FieldDescriptor) -> Read:
        if not field.is_repeated:
            return self._scalar(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            each = self._scalar(field.message_type.fields_by_name["value"])
            return lambda entries: {str(key): each(entries[key]) for key in sorted(entries)}
        each = self._scalar(field)
        return lambda items: [each(item) for item in items]

    def _scalar(self, field: FieldDescriptor) -> Read:
        if field.message_type is not None:
            return _WELL_KNOWN.get(field.message_type.full_name, self)
        if field.enum_type is not None:
            known = words(field.enum_type)
            # A number that a newer peer knows and this build does not is shown as it is.
            return lambda number: known.get(number, number)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return fragment if field.full_name in self._json_fields else blob
        return lambda value: value

    @staticmethod
    def _key(field: FieldDescriptor) -> str:
        is_duration = field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"
        return f"{field.name}_ms" if is_duration else field.name


_WELL_KNOWN: Mapping[str, Read] = {
    "google.protobuf.Timestamp": timestamp,
    "google.protobuf.Duration": milliseconds,
}
