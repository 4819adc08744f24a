"""Messages as JSON: what is in bytes is shown as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from toolmesh.authz.v1 import authz_service_pb2
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh.registry.v1 import discovery_service_pb2, upstream_service_pb2
from toolmesh_sdk.cli.views.documents import JSON_FIELDS, message_to_dict

# Hashes, content of results and documents that are shown by other means.
_NOT_JSON = {
    *("canonical_json", "canonical_records", "blob", "content", "first_hashes", "first_root", "hashes", "known_hashes"),
    *("last_hashes", "leaf_hash", "opening_hashes", "root_hash", "second_root"),
}


def _bytes_fields() -> Iterator[str]:
    """Yield the names of all bytes fields of the contract."""
    pool: Any = descriptor_pool.Default()
    for service in ("authz", "executor", "registry", "approval", "audit"):
        __import__(f"toolmesh.{service}.v1.{service}_service_pb2")
    names = ("authz", "executor", "registry", "approval", "audit")
    pending = [pool.FindFileByName(f"toolmesh/{name}/v1/{name}_service.proto") for name in names]
    seen = set()
    while pending:
        file = pending.pop()
        if file.name in seen or not file.name.startswith("toolmesh/"):
            continue
        seen.add(file.name)
        pending += file.dependencies
        for message in file.message_types_by_name.values():
            yield from (field.name for field in message.fields if field.type == FieldDescriptor.TYPE_BYTES)


def test_every_bytes_field_is_known_as_json_or_as_something_else() -> None:
    assert set(_bytes_fields()) - JSON_FIELDS - _NOT_JSON == set()


def test_json_in_bytes_is_shown_as_json_and_hashes_in_hex() -> None:
    schema = discovery_service_pb2.ToolSchema(input_schema=b'{"type":"object"}')
    assert message_to_dict(schema)["input_schema"] == {"type": "object"}
    preview = executor_service_pb2.PreviewInvocationResponse(predicted_result=b'{"n":1}')
    assert message_to_dict(preview)["predicted_result"] == {"n": 1}
    keys = authz_service_pb2.GetJwksResponse(jwks=b'{"keys":[]}')
    assert message_to_dict(keys)["jwks"] == {"keys": []}
    tool = upstream_service_pb2.DiscoveredTool(definition=b'{"name":"a"}')
    assert message_to_dict(tool)["definition"] == {"name": "a"}
