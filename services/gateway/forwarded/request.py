"""Builds the request of an RPC from validated parameters."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from libs.common.errors import Violation
from libs.common.json.json_pointer import escaped
from services.gateway.domain.errors import wrong_params
from services.gateway.protojson import entry_of, key_of, words

Build = Callable[[Any, str], Any]


class RequestBuilder:
    """Builds messages of one type. `json_fields` names the bytes that hold JSON."""

    def __init__(self, message: Descriptor, json_fields: Collection[str], inline: str = "") -> None:
        self._class = GetMessageClass(message)
        self._inline = inline
        self._fields = {key_of(field): (field.name, _builder(field, json_fields)) for field in message.fields}
        self._inner: RequestBuilder | None = None
        inner = message.fields_by_name[inline].message_type if inline else None
        if inner is not None:
            self._inner = RequestBuilder(inner, json_fields)

    def build(self, params: Mapping[str, Any], path: str = "") -> Message:
        """Return the message. Raises INVALID_PARAMS for a text that is no time or no base64."""
        values: dict[str, Any] = {}
        inner: dict[str, Any] = {}
        for key, value in params.items():
            known = self._fields.get(key)
            if known is None:
                inner[key] = value
            elif value is not None:
                name, build = known
                values[name] = build(value, f"{path}/{escaped(key)}")
        if self._inner is not None:
            values[self._inline] = self._inner.build(inner, path)
        return self._class(**values)


def _builder(field: FieldDescriptor, json_fields: Collection[str]) -> Build:
    entry = entry_of(field)
    if entry is not None:
        each = _single(entry.fields_by_name["value"], json_fields)
        return lambda values, path: {key: each(value, f"{path}/{escaped(key)}") for key, value in values.items()}
    build = _single(field, json_fields)
    if field.is_repeated:
        return lambda values, path: [build(value, f"{path}/{index}") for index, value in enumerate(values)]
    return build


def _single(field: FieldDescriptor, json_fields: Collection[str]) -> Build:
    message = field.message_type
    if message is not None:
        known = _WELL_KNOWN.get(message.full_name)
        return known or RequestBuilder(message, json_fields).build
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _json if field.full_name in json_fields else _base64
    if field.cpp_type in _WHOLE:
        # JSON Schema counts 10.0 as an integer.
        return lambda value, path: int(value)
    return lambda value, path: value


def _enum(enum: EnumDescriptor) -> Build:
    numbers = {word: number for number, word in words(enum).items()}
    return lambda value, path: numbers[value]


def _json(value: Any, path: str) -> bytes:
    return orjson.dumps(value)


def _base64(value: str, path: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise wrong_params([Violation(path, "contentEncoding", "is not base64")]) from None


def _timestamp(value: str, path: str) -> Timestamp:
    moment = Timestamp()
    try:
        moment.FromJsonString(value)
    except ValueError:
        raise wrong_params([Violation(path, "format", "is not a time of RFC 3339")]) from None
    return moment


def _duration(value: float, path: str) -> Duration:
    nanos = round(value * 1_000_000)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)


_WELL_KNOWN: Mapping[str, Build] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
}
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}
