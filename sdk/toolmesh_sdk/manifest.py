"""Manifests as documents that people write: the contract's field names, words for enums, JSON for schemas, `5s` for durations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from toolmesh.common.v1.error_table import Reason
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from toolmesh_sdk._wire.payload import dump
from toolmesh_sdk.errors import Violation, error_of

_WHOLE = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}
_MOST_PROBLEMS = 100
_MISSING_WORD = "enum.not_in"
_ELEMENT = re.compile(r"[^.\[\]]+")
_SECONDS = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?s")


def manifest_from(document: Any) -> ToolManifest:
    """Return the manifest that a document describes. Raises InvalidInputError with everything that is wrong with it, each with its place."""
    message = ToolManifest()
    problems = [Violation(place, "form", str(what)) for place, what in _fill(message, document, "")]
    if problems:
        raise error_of(Reason.TOOL_MANIFEST_INVALID, violations=problems[:_MOST_PROBLEMS])
    return message


def as_written(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return what the contract finds wrong with a request, in the terms of the document that its manifest was written as."""
    return tuple(_as_written(each) for each in violations)


def _as_written(violation: Violation) -> Violation:
    root, *steps = _ELEMENT.findall(violation.path) or [""]
    if violation.path.startswith("/") or root != "manifest":
        return violation
    enum = _enum_at(steps) if violation.rule == _MISSING_WORD else None
    message = violation.message if enum is None else f"is missing; it is one of {_words(enum)}"
    return replace(violation, path="".join(f"/{step}" for step in steps), message=message)


def _enum_at(steps: Iterable[str]) -> EnumDescriptor | None:
    """Return the words that a place of a manifest takes; None where it takes other things."""
    inside: Descriptor | None = ToolManifest.DESCRIPTOR
    field: FieldDescriptor | None = None
    for step in steps:
        if not step.isdigit():
            field = inside.fields_by_name.get(step) if inside is not None else None
            inside = field.message_type if field is not None else None
    return field.enum_type if field is not None else None


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
    found = enum.values_by_name.get(_prefix(enum) + value.upper()) if isinstance(value, str) else None
    return found.number if found is not None and found.number else _Problem(f"is none of {_words(enum)}")


def _words(enum: EnumDescriptor) -> str:
    return ", ".join(each.name.removeprefix(_prefix(enum)).lower() for each in enum.values if each.number)


def _prefix(enum: EnumDescriptor) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
