"""Conversions between the manifest message and the document that is stored and digested.

Both directions walk the message descriptor, so new fields need no code here. The document uses the field names of the
contract; every `bytes` field holds JSON and is embedded as a value; enums are lower-case words without their prefix;
durations are seconds as text, as in Protobuf's JSON; fields with default values are absent, and a present but empty
message is an empty object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import dump, parse
from services.registry.domain.publishing.manifest import Manifest


def manifest_of(message: ToolManifest) -> Manifest:
    """Read a manifest, and report all unreadable fields at once. Embedded text that is not JSON raises INVALID_JSON or
    PAYLOAD_TOO_LARGE; an unknown field, enum value or impossible duration raises INVALID_REQUEST."""
    reader = _MessageReader()
    document = reader.message(message, "manifest")
    if reader.refusals:
        reason = reader.refusals[0][0]
        raise MeshError(reason, violations=[violation for _, violation in reader.refusals])
    return Manifest(document)


def message_of(manifest: Manifest) -> ToolManifest:
    """Write a manifest as a message; the inverse of `manifest_of`."""
    message = ToolManifest()
    _fill(message, manifest.document)
    return message


class _MessageReader:
    """One pass over a message that collects unreadable fields."""

    def __init__(self) -> None:
        self.refusals: list[tuple[Reason, Violation]] = []

    def message(self, message: Message, path: str) -> dict[str, Any]:
        if len(UnknownFieldSet(message)):
            # A field that this build does not know must not be dropped silently.
            self._refuse(Reason.INVALID_REQUEST, path, "field.unknown", "has a field that this registry does not know")
        return {field.name: self._field(field, value, f"{path}.{field.name}") for field, value in message.ListFields()}

    def _field(self, field: FieldDescriptor, value: Any, path: str) -> Any:
        if _is_map(field):
            return dict(value)
        read = self._reader(field)
        if field.is_repeated:
            return [read(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return read(value, path)

    def _reader(self, field: FieldDescriptor) -> Callable[[Any, str], Any]:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            return self._duration if _is_duration(field) else self.message
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._json
        if field.type == FieldDescriptor.TYPE_ENUM:
            words = _words(field.enum_type)
            return lambda number, path: self._word(words, number, path)
        return lambda value, path: value

    def _json(self, payload: bytes, path: str) -> Any:
        try:
            return parse(payload)
        except MeshError as error:
            return self._refuse(error.reason, path, "json", error.message)

    def _duration(self, duration: Duration, path: str) -> Any:
        try:
            return duration.ToJsonString()
        except ValueError:
            return self._refuse(Reason.INVALID_REQUEST, path, "duration.range", "is not a duration")

    def _word(self, words: Mapping[int, str], number: int, path: str) -> Any:
        if number not in words:
            return self._refuse(Reason.INVALID_REQUEST, path, "enum.defined_only", "is not a value of its enum")
        return words[number]

    def _refuse(self, reason: Reason, path: str, rule: str, message: str) -> None:
        self.refusals.append((reason, Violation(path, rule, message)))


def _fill(message: Message, document: Mapping[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in document.items():
        field: Any = fields[name]
        held = getattr(message, name)
        if _is_map(field):
            held.update(value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill_message(field, held, value)
        elif field.is_repeated:
            held.extend(_scalar(field, item) for item in value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_message(field: FieldDescriptor, held: Any, value: Any) -> None:
    if field.is_repeated:
        for item in value:
            _fill(held.add(), item)
    elif _is_duration(field):
        held.FromJsonString(value)
        held.SetInParent()
    else:
        held.SetInParent()
        _fill(held, value)


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dump(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _numbers(field.enum_type)[value]
    return value


def _is_map(field: FieldDescriptor) -> bool:
    return field.is_repeated and field.type == FieldDescriptor.TYPE_MESSAGE and _is_map_entry(field)


@cache
def _is_map_entry(field: FieldDescriptor) -> bool:
    entry: Any = field.message_type
    return bool(entry.GetOptions().map_entry)


def _is_duration(field: FieldDescriptor) -> bool:
    kind: Any = field.message_type
    return bool(kind.full_name == Duration.DESCRIPTOR.full_name)


@cache
def _words(enum: EnumDescriptor) -> Mapping[int, str]:
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in enum.values}


@cache
def _numbers(enum: EnumDescriptor) -> Mapping[str, int]:
    return {word: number for number, word in _words(enum).items()}
