"""Parses tool manifests from JSON documents: enum labels, JSON schemas, and durations such as `5s`.

Fields that are left out take the defaults of `defaults.py`.
"""

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
from toolmesh_sdk.errors import Violation, error_for_reason
from toolmesh_sdk.manifests.defaults import complete
from toolmesh_sdk.manifests.labels import label_of, prefix_of

_INTEGERS = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}
_MAX_PROBLEMS = 100
# Tells an editor the JSON Schema of the document.
_SCHEMA_REFERENCE = "$schema"
_MISSING_ENUM = "enum.not_in"
_ELEMENT = re.compile(r"[^.\[\]]+")
_SECONDS = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?s")


def manifest_from(document: Any) -> ToolManifest:
    """Parse a manifest. Raises InvalidInputError with all problems, each with its JSON Pointer."""
    message, problems = parse_manifest(document)
    if problems:
        raise error_for_reason(Reason.TOOL_MANIFEST_INVALID, violations=problems[:_MAX_PROBLEMS])
    return message


def parse_manifest(document: Any) -> tuple[ToolManifest, list[Violation]]:
    """Parse what can be parsed of a manifest, and return the problems of the rest."""
    message = ToolManifest()
    problems = [Violation(pointer, "form", str(problem)) for pointer, problem in _fill(message, complete(document), "")]
    return message, problems


def translate_violations(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Translate violations of a RegisterTool request to the paths and labels of the manifest document."""
    return tuple(_translate_violation(violation) for violation in violations)


def _translate_violation(violation: Violation) -> Violation:
    root, *steps = _ELEMENT.findall(violation.path) or [""]
    if violation.path.startswith("/") or root != "manifest":
        return violation
    enum = _enum_of(steps) if violation.rule == _MISSING_ENUM else None
    message = violation.message if enum is None else f"is missing; it is one of {_labels(enum)}"
    return replace(violation, path="".join(f"/{step}" for step in steps), message=message)


def _enum_of(steps: Iterable[str]) -> EnumDescriptor | None:
    """Return the enum of a manifest field; None if the field is not an enum."""
    inside: Descriptor | None = ToolManifest.DESCRIPTOR
    field: FieldDescriptor | None = None
    for step in steps:
        if not step.isdigit():
            field = inside.fields_by_name.get(step) if inside is not None else None
            inside = field.message_type if field is not None else None
    return field.enum_type if field is not None else None


def _fill(message: Message, document: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if not isinstance(document, dict):
        yield pointer, "is not an object"
        return
    for name, value in document.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if not pointer and name == _SCHEMA_REFERENCE:
            continue
        if field is None:
            yield f"{pointer}/{name}", "is not a field of a manifest"
        else:
            yield from _set(message, field, value, f"{pointer}/{name}")


def _set(message: Message, field: Any, value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _set_map(target, value, pointer)
    elif field.is_repeated:
        if not isinstance(value, list):
            yield pointer, "is not a list"
            return
        for index, item in enumerate(value):
            yield from _add(target, field, item, f"{pointer}/{index}")
    elif field.message_type is None:
        scalar = _scalar(field, value)
        if isinstance(scalar, _Problem):
            yield pointer, scalar
        else:
            setattr(message, field.name, scalar)
    elif field.message_type.full_name == Duration.DESCRIPTOR.full_name:
        yield from _set_duration(target, value, pointer)
    else:
        target.SetInParent()
        yield from _fill(target, value, pointer)


def _add(target: Any, field: Any, item: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if field.message_type is not None:
        yield from _fill(target.add(), item, pointer)
        return
    scalar = _scalar(field, item)
    if isinstance(scalar, _Problem):
        yield pointer, scalar
    else:
        target.append(scalar)


def _set_map(target: Any, value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        yield pointer, "is not an object of strings"
        return
    target.update(value)


def _set_duration(target: Duration, value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    match = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        yield pointer, "is not a duration such as 5s or 0.25s"
        return
    target.seconds, target.nanos = int(match[1]), int((match[2] or "").ljust(9, "0"))


class _Problem(str):
    """The problem of a value, as a message."""

    __slots__ = ()


def _scalar(field: Any, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dump(value)
    if field.enum_type is not None:
        return _number(field.enum_type, value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return value if isinstance(value, str) else _Problem("is not a string")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return value if isinstance(value, bool) else _Problem("is not true or false")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _Problem("is not a number")
    if field.type in _INTEGERS and (not isinstance(value, int) or abs(value) >= 1 << 31):
        return _Problem("is not a 32-bit integer")
    return value


def _number(enum: EnumDescriptor, value: Any) -> Any:
    known = enum.values_by_name.get(prefix_of(enum) + value.upper()) if isinstance(value, str) else None
    return known.number if known is not None and known.number else _Problem(f"is none of {_labels(enum)}")


def _labels(enum: EnumDescriptor) -> str:
    return ", ".join(label_of(enum, each.name) for each in enum.values if each.number)
