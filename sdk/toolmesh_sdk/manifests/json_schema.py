"""Builds the JSON Schema of manifest documents from the contract: its fields, rules and comments.

Editors complete and check manifests with it. Rules that span fields are not in it; `toolmesh tools check` has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from toolmesh.comments import COMMENTS
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from toolmesh_sdk.manifests.labels import label_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REQUIRED = ("namespace", "tool_id", "description", "execution")
_DURATION = r"^[0-9]{1,9}(\.[0-9]{1,9})?s$"
_NUMBERS = {
    FieldDescriptor.TYPE_INT32: "integer",
    FieldDescriptor.TYPE_INT64: "integer",
    FieldDescriptor.TYPE_DOUBLE: "number",
}
_BOUNDS = (("gte", "minimum"), ("lte", "maximum"))


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest."""
    parts = sorted(_messages(ToolManifest.DESCRIPTOR, set()), key=lambda message: message.name)
    return {
        "$schema": DIALECT,
        "title": "Toolmesh tool manifest",
        **_object(ToolManifest.DESCRIPTOR),
        "required": list(REQUIRED),
        "$defs": {message.name: _object(message) for message in parts},
    }


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def is_duration(field: FieldDescriptor) -> bool:
    """Return whether a field is a length of time, which documents write as `5s`."""
    return field.message_type is not None and field.message_type.full_name == Duration.DESCRIPTOR.full_name


def _messages(message: Descriptor, seen: set[str]) -> Iterator[Descriptor]:
    for field in message.fields:
        inner = field.message_type
        if inner is None or is_map(field) or is_duration(field) or inner.full_name in seen:
            continue
        seen.add(inner.full_name)
        yield inner
        yield from _messages(inner, seen)


def _object(message: Descriptor) -> dict[str, Any]:
    properties = {field.name: {**_described(field), **_field(field)} for field in message.fields}
    if message is ToolManifest.DESCRIPTOR:
        properties = {"$schema": {"type": "string"}, **properties}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _described(field: FieldDescriptor) -> dict[str, Any]:
    return {"description": COMMENTS[field.full_name]}


def _field(field: FieldDescriptor) -> dict[str, Any]:
    rules = field.GetOptions().Extensions[validate_pb2.field]
    if is_map(field):
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if not field.is_repeated:
        return _single(field, rules)
    listed: dict[str, Any] = {"type": "array", "items": _single(field, rules.repeated.items)}
    if rules.repeated.HasField("max_items"):
        listed["maxItems"] = rules.repeated.max_items
    if rules.repeated.unique:
        listed["uniqueItems"] = True
    return listed


def _single(field: FieldDescriptor, rules: Any) -> dict[str, Any]:
    if is_duration(field):
        return {"type": "string", "pattern": _DURATION}
    if field.message_type is not None:
        return {"$ref": f"#/$defs/{field.message_type.name}"}
    if field.enum_type is not None:
        return {"enum": labels_of(field.enum_type)}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "object"} if field.name.endswith("schema") else {}
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    if field.type in _NUMBERS:
        kind = "double" if field.type == FieldDescriptor.TYPE_DOUBLE else "int32"
        bounds = rules.int64 if field.type == FieldDescriptor.TYPE_INT64 else getattr(rules, kind)
        return {"type": _NUMBERS[field.type], **_bounds(bounds)}
    return {"type": "string", **_text(rules.string)}


def labels_of(enum: EnumDescriptor) -> list[str]:
    """Return the values of an enum as documents write them."""
    return [label_of(enum, value.name) for value in enum.values if value.number]


def _bounds(rules: Any) -> dict[str, Any]:
    return {keyword: getattr(rules, name) for name, keyword in _BOUNDS if rules.HasField(name)}


def _text(rules: Any) -> dict[str, Any]:
    listed = getattr(rules, "in")
    if listed:
        return {"enum": list(listed)}
    names = (("min_len", "minLength"), ("max_len", "maxLength"), ("pattern", "pattern"))
    return {keyword: getattr(rules, name) for name, keyword in names if rules.HasField(name)}
