"""Derives the JSON Schema of parameters from the descriptor of a request and its validation rules.

The JSON is that of `protojson`: enums are lower-case words, durations are milliseconds under their name and `_ms`,
timestamps are RFC 3339, bytes that hold JSON are that JSON, other bytes are base64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from services.gateway.protojson import entry_of, key_of, words

Schema = dict[str, Any]
# Bounds of fields without a rule of their own; the body of a request is bounded anyway.
_MAX_CHARACTERS = 65_536
_MAX_ITEMS = 1_000
# RFC 3339 with nine digits and an offset.
_MAX_TIME = 40
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_NUMBERS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


def fields_of(message: Descriptor, inline: str = "") -> Iterator[FieldDescriptor]:
    """Yield the fields that are parameters; those of the field `inline` take its place."""
    for field in message.fields:
        if inline and field.name == inline and field.message_type is not None:
            yield from field.message_type.fields
        else:
            yield field


def is_required(field: FieldDescriptor) -> bool:
    """Return whether a request without the field is always refused."""
    rules = _rules(field)
    if field.containing_oneof is not None:
        return False
    return bool(rules.required or rules.string.min_len or (rules.string.pattern and not _allows_empty(rules)))


class RequestSchemas:
    """Derives schemas. `json_fields` names the bytes that hold JSON."""

    def __init__(self, json_fields: Collection[str]) -> None:
        self._json_fields = frozenset(json_fields)

    def of(self, field: FieldDescriptor) -> Schema:
        """Return the schema of a field's value."""
        if not field.is_repeated:
            return self._single(field, _rules(field))
        entry = entry_of(field)
        if entry is not None:
            value = self.of(entry.fields_by_name["value"])
            return {"type": "object", "additionalProperties": value, "maxProperties": _MAX_ITEMS}
        rules = _rules(field).repeated
        schema: Schema = {"type": "array", "items": self._single(field, rules.items)}
        schema["maxItems"] = rules.max_items if rules.HasField("max_items") else _MAX_ITEMS
        if rules.min_items:
            schema["minItems"] = rules.min_items
        if rules.unique:
            schema["uniqueItems"] = True
        return schema

    def object_of(self, message: Descriptor) -> Schema:
        """Return the schema of a message."""
        return {
            "type": "object",
            "properties": {key_of(field): self.of(field) for field in message.fields},
            "required": [key_of(field) for field in message.fields if is_required(field)],
            "additionalProperties": False,
        }

    def _single(self, field: FieldDescriptor, rules: validate_pb2.FieldRules) -> Schema:
        kind = field.cpp_type
        if field.message_type is not None:
            return self._message(field.message_type, rules)
        if field.enum_type is not None:
            refused = set(rules.enum.not_in)
            return {"enum": [word for number, word in words(field.enum_type).items() if number not in refused]}
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {} if field.full_name in self._json_fields else {"type": "string", "contentEncoding": "base64"}
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return _text(rules.string)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"}
        if kind in _NUMBERS:
            return {"type": "number"}
        return _whole(field, rules)

    def _message(self, message: Descriptor, rules: validate_pb2.FieldRules) -> Schema:
        if message.full_name == "google.protobuf.Timestamp":
            return {"type": "string", "format": "date-time", "maxLength": _MAX_TIME}
        if message.full_name == "google.protobuf.Duration":
            highest = rules.duration.lte.seconds * 1000 if rules.duration.HasField("lte") else 2**53
            return {"type": "number", "minimum": 0, "maximum": highest}
        return self.object_of(message)


def _text(rules: validate_pb2.StringRules) -> Schema:
    schema: Schema = {"type": "string", "maxLength": rules.max_len if rules.HasField("max_len") else _MAX_CHARACTERS}
    if rules.min_len:
        schema["minLength"] = rules.min_len
    if rules.pattern:
        schema["pattern"] = rules.pattern
    return schema


def _whole(field: FieldDescriptor, rules: validate_pb2.FieldRules) -> Schema:
    lowest, highest = _RANGES[field.cpp_type]
    bounds: Any = getattr(rules, "int64" if field.cpp_type == FieldDescriptor.CPPTYPE_INT64 else "int32")
    if bounds.HasField("gte"):
        lowest = bounds.gte
    if bounds.HasField("gt"):
        lowest = bounds.gt + 1
    if bounds.HasField("lte"):
        highest = bounds.lte
    if bounds.HasField("lt"):
        highest = bounds.lt - 1
    return {"type": "integer", "minimum": lowest, "maximum": highest}


def _allows_empty(rules: validate_pb2.FieldRules) -> bool:
    return rules.ignore == validate_pb2.IGNORE_IF_ZERO_VALUE or rules.string.pattern.endswith((")?$", "*$"))


def _rules(field: FieldDescriptor) -> validate_pb2.FieldRules:
    rules: validate_pb2.FieldRules = field.GetOptions().Extensions[validate_pb2.field]
    return rules
