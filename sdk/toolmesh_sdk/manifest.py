"""Manifests as documents that people write: the contract's field names, words for enums, JSON for schemas, `5s` for durations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from toolmesh.common.v1.error_table import Reason
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from toolmesh_sdk.errors import Violation, error_of
from toolmesh_sdk.payload import dump

_WHOLE = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}
_MOST_PROBLEMS = 100
_SECONDS = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?s")


def manifest_from(document: Any) -> ToolManifest:
    """Return the manifest that a document describes. Raises InvalidInputError with everything that is wrong with it, each with its place."""
    message = ToolManifest()
    problems = [Violation(place, "form", str(what)) for place, what in _fill(message, document, "")]
    if problems:
        raise error_of(Reason.TOOL_MANIFEST_INVALID, violations=problems[:_MOST_PROBLEMS])
    return message


def _fill(message: Message, document: Any, at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(document, dict):
        yield at, "is not an object"
        return
    for name, value in document.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            yield f"{at}/{name}", "is not a field of a manifest"
        else:
            yield from _set(message, field, value, f"{at}/{name}")


def _set(message: Message, field: Any, value: Any, at: str) -> Iterator[tuple[str, str]]:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _set_map(target, value, at)
    elif field.is_repeated:
        if not isinstance(value, list):
            yield at, "is not a list"
            return
        for place, item in enumerate(value):
            yield from _add(target, field, item, f"{at}/{place}")
    elif field.message_type is None:
        found = _scalar(field, value)
        if isinstance(found, _Problem):
            yield at, found
        else:
            setattr(message, field.name, found)
    elif field.message_type.full_name == Duration.DESCRIPTOR.full_name:
        yield from _set_duration(target, value, at)
    else:
        target.SetInParent()
        yield from _fill(target, value, at)


def _add(target: Any, field: Any, item: Any, at: str) -> Iterator[tuple[str, str]]:
    if field.message_type is not None:
        yield from _fill(target.add(), item, at)
        return
    found = _scalar(field, item)
    if isinstance(found, _Problem):
        yield at, found
    else:
        target.append(found)


def _set_map(target: Any, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        yield at, "is not an object of texts"
        return
    target.update(value)


def _set_duration(target: Duration, value: Any, at: str) -> Iterator[tuple[str, str]]:
    found = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        yield at, "is not a duration such as 5s or 0.25s"
        return
    target.seconds, target.nanos = int(found[1]), int((found[2] or "").ljust(9, "0"))


class _Problem(str):
    """What is wrong with a value, in words."""

    __slots__ = ()


def _scalar(field: Any, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dump(value)
    if field.enum_type is not None:
        return _number(field.enum_type, value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return value if isinstance(value, str) else _Problem("is not a text")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return value if isinstance(value, bool) else _Problem("is not true or false")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _Problem("is not a number")
    if field.type in _WHOLE and (not isinstance(value, int) or abs(value) >= 1 << 31):
        return _Problem("is not a whole number that fits")
    return value


def _number(enum: EnumDescriptor, value: Any) -> Any:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    found = enum.values_by_name.get(prefix + value.upper()) if isinstance(value, str) else None
    if found is None or not found.number:
        words = ", ".join(each.name.removeprefix(prefix).lower() for each in enum.values if each.number)
        return _Problem(f"is none of {words}")
    return found.number
