"""Write the protovalidate contract as a .proto file, so that the compiler can read the rules our own files use.

The installed wheel carries the contract only as a compiled descriptor, and buf's schema registry may be out of
reach. Printing the descriptor back keeps the version of the rules and the version of their evaluator the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import descriptor_pb2 as d

F = d.FieldDescriptorProto
SCALARS = {
    F.TYPE_DOUBLE: "double",
    F.TYPE_FLOAT: "float",
    F.TYPE_INT64: "int64",
    F.TYPE_UINT64: "uint64",
    F.TYPE_INT32: "int32",
    F.TYPE_FIXED64: "fixed64",
    F.TYPE_FIXED32: "fixed32",
    F.TYPE_BOOL: "bool",
    F.TYPE_STRING: "string",
    F.TYPE_BYTES: "bytes",
    F.TYPE_UINT32: "uint32",
    F.TYPE_SFIXED32: "sfixed32",
    F.TYPE_SFIXED64: "sfixed64",
    F.TYPE_SINT32: "sint32",
    F.TYPE_SINT64: "sint64",
}
LABELS = {F.LABEL_OPTIONAL: "optional", F.LABEL_REPEATED: "repeated", F.LABEL_REQUIRED: "required"}


def print_file(file: d.FileDescriptorProto) -> str:
    """Print a descriptor as proto text; options are left out, names, numbers and types are kept."""
    lines = [f'syntax = "{file.syntax or "proto2"}";', f"package {file.package};"]
    lines += [f'import "{dependency}";' for dependency in file.dependency]
    for message in file.message_type:
        lines += _message(message, "")
    for enum in file.enum_type:
        lines += _enum(enum, "")
    lines += _extensions(file.extension, "")
    return "\n".join(lines) + "\n"


def _message(message: d.DescriptorProto, pad: str) -> list[str]:
    inner = pad + "  "
    lines = [f"{pad}message {message.name} {{"]
    for nested in message.nested_type:
        lines += _message(nested, inner)
    for enum in message.enum_type:
        lines += _enum(enum, inner)
    loose = [f for f in message.field if not f.HasField("oneof_index") or f.proto3_optional]
    lines += [_field(f, inner, LABELS[f.label] + " ") for f in loose]
    for index, oneof in enumerate(message.oneof_decl):
        members = [f for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        lines += [f"{inner}oneof {oneof.name} {{", *(_field(f, inner + "  ", "") for f in members), f"{inner}}}"]
    lines += [f"{inner}extensions {r.start} to {_range_end(r.end)};" for r in message.extension_range]
    lines += [f"{inner}reserved {r.start} to {r.end - 1};" for r in message.reserved_range]
    lines += [f'{inner}reserved "{name}";' for name in message.reserved_name]
    lines += _extensions(message.extension, inner)
    return [*lines, f"{pad}}}"]


def _range_end(end: int) -> str:
    return "max" if end == 536870912 else str(end - 1)


def _field(field: d.FieldDescriptorProto, pad: str, label: str) -> str:
    kind = SCALARS.get(field.type) or field.type_name
    return f"{pad}{label}{kind} {field.name} = {field.number};"


def _enum(enum: d.EnumDescriptorProto, pad: str) -> list[str]:
    values = [f"{pad}  {v.name} = {v.number};" for v in enum.value]
    return [f"{pad}enum {enum.name} {{", *values, f"{pad}}}"]


def _extensions(fields: Iterable[d.FieldDescriptorProto], pad: str) -> list[str]:
    return [f"{pad}extend {f.extendee} {{ {_field(f, '', LABELS[f.label] + ' ')} }}" for f in fields]


def write(target: Path) -> None:
    """Write buf/validate/validate.proto below the target folder."""
    from protovalidate._gen.buf.validate import validate_pb

    file = d.FileDescriptorProto.FromString(validate_pb.desc().proto.to_binary())
    path = target / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = print_file(file)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
