"""Describes Protobuf messages in their JSON form as JSON Schema 2020-12. Pure.

The JSON form is the one of Protobuf itself, with the names of fields as in the descriptor: 64-bit integers are texts,
enumerations are names, bytes are base64.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_MESSAGES = 500
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
}
_LONG_INTEGERS = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
_FLOATS = frozenset({FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE})
_WRAPPED_NUMBERS = ("Double", "Float", "Int32", "UInt32")
_WELL_KNOWN: dict[str, dict[str, Any]] = {
    "Timestamp": {"type": "string", "format": "date-time"},
    "Duration": {"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?s$"},
    "FieldMask": {"type": "string"},
    "Struct": {"type": "object"},
    "Value": {},
    "ListValue": {"type": "array"},
    "Any": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
    "BoolValue": {"type": ["boolean", "null"]},
    "StringValue": {"type": ["string", "null"]},
    "BytesValue": {"type": ["string", "null"]},
    "Int64Value": {"type": ["string", "integer", "null"]},
    "UInt64Value": {"type": ["string", "integer", "null"]},
    **{f"{name}Value": {"type": ["number", "string", "null"]} for name in _WRAPPED_NUMBERS},
}
_PREFIX = "google.protobuf."


class SchemaTooLargeError(Exception):
    """A message needs too many others."""


class MessageSchemas:
    """The schemas of one message and of those that it holds, as `$defs`."""

    def __init__(self, *, closed: bool) -> None:
        """Arguments are closed: an unknown field is refused."""
        self._closed = closed
        self.messages: dict[str, Descriptor] = {}
        self._definitions: dict[str, Any] = {}

    def describe(self, message: Descriptor) -> dict[str, Any]:
        """Return the schema of a message as a whole. Raises SchemaTooLargeError."""
        schema = self._object(message)
        waiting = dict(self.messages)
        while waiting:
            name, part = waiting.popitem()
            self._definitions[name] = self._object(part)
            if len(self.messages) > MAX_MESSAGES:
                raise SchemaTooLargeError
            waiting |= {key: each for key, each in self.messages.items() if key not in self._definitions}
        return schema | ({"$defs": dict(sorted(self._definitions.items()))} if self._definitions else {})

    def _object(self, message: Descriptor) -> dict[str, Any]:
        properties = {field.name: self._field(field) for field in message.fields}
        required = [field.name for field in message.fields if field.is_required]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if self._closed else {}),
        }

    def _field(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self._single(field.message_type.fields_by_name["value"])}
        if field.is_repeated:
            return {"type": "array", "items": self._single(field)}
        return self._single(field)

    def _single(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.cpp_type in _INTEGERS:
            least, most = _INTEGERS[field.cpp_type]
            return {"type": "integer", "minimum": least, "maximum": most}
        if field.cpp_type in _LONG_INTEGERS:
            return {"type": ["string", "integer"], "pattern": "^-?[0-9]{1,20}$"}
        if field.cpp_type in _FLOATS:
            # NaN and the infinities are texts.
            return {"type": ["number", "string"]}
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"}
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return self._enumeration(field)
        if field.message_type is not None:
            return self._message(field.message_type)
        if field.type == FieldDescriptor.TYPE_BYTES:
            # The library ignores characters that are no base64.
            return {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$"}
        return {"type": "string"}

    def _enumeration(self, field: FieldDescriptor) -> dict[str, Any]:
        if field.enum_type and field.enum_type.full_name == _PREFIX + "NullValue":
            return {"type": "null"}
        # A server may know values that its description does not.
        names = [value.name for value in field.enum_type.values] if field.enum_type else []
        return {"enum": names} if self._closed else {"type": ["string", "integer"]}

    def _message(self, message: Descriptor) -> dict[str, Any]:
        name = message.full_name
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name.removeprefix(_PREFIX)])
        self.messages[name] = message
        return {"$ref": f"#/$defs/{name}"}
