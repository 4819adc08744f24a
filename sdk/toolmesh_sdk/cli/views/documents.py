"""Converts protobuf messages to JSON objects: enum labels instead of numbers, JSON instead of bytes.

Absent messages, empty strings and empty lists are left out; numbers and booleans are always present.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toolmesh_sdk._wire.payload import parse

# Bytes fields that hold JSON. All other bytes are hashes or content.
JSON_FIELDS = {
    *("schema", "input_schema", "output_schema", "runtime_schema", "error_schema", "arguments", "result", "meta"),
    *("model_input", "observable_input", "permission_input", "call_input", "updated_input", "predicted_result"),
    *("params", "definition", "constants", "end", "jwks"),
    *("arguments_summary", "result_summary", "structured_content", "redacted_arguments", "preview"),
    *("accepted_definition", "pending_definition"),
}


def message_to_dict(message: Message, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields of a message, in their order, except those named in `without`."""
    fields = [field for field in message.DESCRIPTOR.fields if field.name not in without and _is_set(message, field)]
    return {field.name: _field(field, getattr(message, field.name)) for field in fields}


def enum_label(enum: EnumDescriptor, number: int) -> str:
    """Return the name of an enum value without its prefix: success for RECORD_STATUS_SUCCESS; empty for zero.

    Error reasons and categories stay upper-case, as in the error table.
    """
    if not number:
        return ""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    value = enum.values_by_number.get(number)
    name = value.name.removeprefix(prefix) if value else str(number)
    return name if enum.name in ("ErrorReason", "ErrorCategory") else name.lower()


def format_time(stamp: Timestamp) -> str:
    """Format a timestamp in ISO 8601, in UTC."""
    return stamp.ToDatetime(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_set(message: Message, field: Any) -> bool:
    if field.has_presence:
        return bool(message.HasField(field.name))
    value = getattr(message, field.name)
    plain_number = field.enum_type is None and not field.is_repeated and isinstance(value, bool | int | float)
    return plain_number or bool(value)


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_value(field, item) for item in value]
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, Timestamp):
        return format_time(value)
    if isinstance(value, Duration):
        return value.ToMicroseconds() / 1e6
    if isinstance(value, Message):
        return message_to_dict(value)
    if isinstance(value, bytes):
        return _bytes(field.name, value)
    return enum_label(field.enum_type, value) if field.enum_type is not None else value


def _bytes(name: str, value: bytes) -> Any:
    if name in JSON_FIELDS:
        return parse(value)
    return value.decode() if name == "canonical_json" else value.hex()
