"""Manifests for tests: valid ones, and one with every field set."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump

INPUT = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 20}, "times": {"type": "integer", "minimum": 1}},
    "required": ["text"],
}
OUTPUT = {"type": "object", "properties": {"echoed": {"type": "string"}}, "required": ["echoed"]}


def reader(name: str = "acme.find_order", version: str = "1.0.0", **changes: Any) -> pb.ToolManifest:
    """A read-only tool that is admissible unless `changes` break it."""
    namespace, _, tool_id = name.rpartition(".")
    manifest = pb.ToolManifest(
        schema_version="0.2.0",
        tool_id=tool_id,
        namespace=namespace,
        version=version,
        title="Find an order",
        description="Finds an order by a text that it holds.",
        provider=namespace,
        kind=pb.TOOL_KIND_FUNCTION,
        protocol=pb.TOOL_PROTOCOL_NATIVE,
        tags=["orders", "search"],
        input=pb.InputContract(
            schema=dump(INPUT),
            examples=[pb.ContractExample(title="one", arguments=b'{"text":"a"}', result=b'{"echoed":"a"}')],
        ),
        output=pb.OutputContract(schema=dump(OUTPUT)),
        execution=pb.ExecutionProfile(runner=pb.RUNNER_KIND_REMOTE, timeout_class=pb.TIMEOUT_CLASS_STANDARD),
        permission=pb.PermissionProfile(required_scopes=["orders:read"]),
        mutation_class=pb.MUTATION_CLASS_READ_ONLY,
        observability=pb.Observability(audit_detail=pb.AUDIT_DETAIL_DIGEST),
    )
    manifest.MergeFrom(pb.ToolManifest(**changes))
    return manifest


def writer(name: str = "acme.cancel_order", version: str = "1.0.0", **changes: Any) -> pb.ToolManifest:
    """A reversible tool, undone by itself, that is admissible unless `changes` break it."""
    return reader(
        name,
        version,
        **{
            "mutation_class": pb.MUTATION_CLASS_WRITE_REVERSIBLE,
            "side_effects": [pb.SideEffect(resource="orders/{id}", operation=pb.SIDE_EFFECT_OPERATION_UPDATE)],
            "idempotency": pb.Idempotency(mode=pb.IDEMPOTENCY_MODE_KEY_REQUIRED),
            "compensation_tool": f"tools/{name}",
            **changes,
        },
    )


def everything() -> pb.ToolManifest:
    """A manifest with every field of every message set. It is not admissible: each member of a oneof is set in turn,
    and values only have the right type."""
    manifest = pb.ToolManifest()
    _set_all(manifest)
    return manifest


def _set_all(message: Message) -> None:
    descriptor: Any = message.DESCRIPTOR
    oneofs = {field for oneof in descriptor.oneofs for field in oneof.fields}
    for field in descriptor.fields:
        if field not in oneofs:
            _set(message, field)


def _set(message: Any, field: FieldDescriptor) -> None:
    held = getattr(message, field.name)
    kind: Any = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        held.update({"key": "value", "öther": ""})
    elif kind is not None and kind.oneofs:
        for member in kind.oneofs[0].fields:
            inner = getattr(held.add(), member.name)
            inner.SetInParent()
            _set_all(inner)
    elif kind is not None:
        _set_message(held.add() if field.is_repeated else held, field)
    elif field.is_repeated:
        held.extend([_value(field, 1), _value(field, 2)])
    else:
        setattr(message, field.name, _value(field, 1))


def _set_message(held: Any, field: FieldDescriptor) -> None:
    if isinstance(held, Duration):
        held.FromNanoseconds(1_500_000_000 + field.number)
    else:
        held.SetInParent()
        _set_all(held)


def _value(field: FieldDescriptor, nth: int) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{field.name} {nth}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dump({field.name: [nth, 1.5, 2**64 - 1, -(2**63), None, True, "ü\n"], "": {}})
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return nth + 0.1
    if field.type == FieldDescriptor.TYPE_ENUM:
        return nth
    return 2**62 if field.type == FieldDescriptor.TYPE_INT64 else nth
