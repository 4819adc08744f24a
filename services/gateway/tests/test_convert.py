"""Messages as JSON, held against the rule read out field by field."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from toolmesh.audit.v1.audit_record_pb2 import LoggedRecord
from toolmesh.authz.v1.token_service_pb2 import DelegateTokenResponse
from toolmesh.executor.v1.executor_service_pb2 import (
    SIBLING_FAILURE_CANCEL_SIBLINGS,
    SIBLING_FAILURE_UNSPECIFIED,
    PreviewInvocationResponse,
)
from toolmesh.executor.v1.invocation_pb2 import InvocationEvent
from toolmesh.executor.v1.result_envelope_pb2 import RESULT_STATUS_SUCCEEDED, ResultEnvelope
from toolmesh.registry.v1.discovery_service_pb2 import GetToolSchemasResponse
from toolmesh.registry.v1.tool_manifest_pb2 import ExternalMapping, ToolKind, ToolManifest
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.errors import MeshError, Reason
from services.gateway import convert
from services.gateway.forwarded.table import FORWARDED
from services.gateway.protojson import MessageJson, timestamp, words


def shown(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def messages(descriptor: Any) -> st.SearchStrategy[Any]:
    """Make messages of a type, every field at random."""
    build = _class_of(descriptor)
    fields = {field.name: _field(field) for field in descriptor.fields}
    groups = [[f.name for f in oneof.fields] for oneof in descriptor.oneofs]

    def keep_one(given_fields: dict[str, Any]) -> Any:
        for group in groups:
            for name in [n for n in group if n in given_fields][1:]:
                del given_fields[name]
        return build(**given_fields)

    return st.fixed_dictionaries({}, optional=fields).map(keep_one)


def _class_of(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    one = _one(field)
    return st.lists(one, max_size=2) if field.is_repeated else one


def _one(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return st.builds(
                Timestamp, seconds=st.integers(-62135596800, 253402300799), nanos=st.integers(0, 999_999_999)
            )
        return messages(field.message_type)
    if field.enum_type is not None:
        return st.sampled_from([v.number for v in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        if field.full_name in convert.JSON_FIELDS:
            return st.sampled_from([b"", b"{}", b'{"n":18446744073709551615}', b"[1,2]"])
        return st.binary(max_size=5)
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.text(max_size=5)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False)
    wide = field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
    return st.integers(-(2**63), 2**63 - 1) if wide else st.integers(-(2**31), 2**31 - 1)


def by_the_rule(message: Any) -> dict[str, Any]:
    """Every field under its name whether it is set or not; of a oneof only the set part."""
    shown_fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value, several = getattr(message, field.name), field.containing_oneof and len(field.containing_oneof.fields) > 1
        is_duration = field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"
        key = f"{field.name}_ms" if is_duration else field.name
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            shown_fields[key] = dict(value)
        elif field.is_repeated:
            shown_fields[key] = [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            shown_fields[key] = _value(field, value)
        elif not several:
            shown_fields[key] = None
    return shown_fields


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        return field.enum_type.values_by_number[value].name.removeprefix(prefix).lower()
    if field.type == FieldDescriptor.TYPE_BYTES:
        if field.full_name in convert.JSON_FIELDS:
            return orjson.loads(value) if value else None
        return base64.b64encode(value).decode()
    if field.message_type is None:
        return value
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return timestamp(value)
    if field.message_type.full_name == "google.protobuf.Duration":
        return value.seconds * 1000 + value.nanos / 1_000_000
    return by_the_rule(value)


@settings(max_examples=100, deadline=None)
@given(result=messages(ResultEnvelope.DESCRIPTOR))
def test_any_result_is_shown_by_the_rule(result: ResultEnvelope) -> None:
    assert shown(convert.result_json(result)) == shown(by_the_rule(result))


@settings(max_examples=50, deadline=None)
@given(version=messages(ToolVersion.DESCRIPTOR))
def test_any_version_is_shown_by_the_rule(version: ToolVersion) -> None:
    assert shown(MessageJson(convert.JSON_FIELDS).convert(version)) == shown(by_the_rule(version))


def test_a_message_leaves_no_trace_in_the_next() -> None:
    first, second = ResultEnvelope(status=RESULT_STATUS_SUCCEEDED, resource_refs=["a"]), ResultEnvelope()
    assert convert.result_json(first)["resource_refs"] == ["a"]
    assert shown(convert.result_json(second)) == shown(by_the_rule(second))


@settings(max_examples=50, deadline=None)
@given(version=messages(ToolVersion.DESCRIPTOR))
def test_any_version_has_a_json_form_with_its_schemas_beside_the_manifest(version: ToolVersion) -> None:
    value = shown(convert.version_json(version))
    manifest = version.manifest
    assert value["input_schema"] == (orjson.loads(manifest.input.schema) if manifest.input.schema else None)
    assert value["output_schema"] == (orjson.loads(manifest.output.schema) if manifest.output.schema else None)


@settings(max_examples=200, deadline=None)
@given(seconds=st.integers(-62135596800, 253402300799), nanos=st.integers(0, 999_999_999))
def test_timestamps_are_read_back_as_they_were(seconds: int, nanos: int) -> None:
    value = Timestamp(seconds=seconds, nanos=nanos)
    read = Timestamp()
    read.FromJsonString(timestamp(value))
    assert read == value


def test_enums_are_words_without_their_prefix() -> None:
    known = words(ToolKind.DESCRIPTOR)
    assert (known[0], known[2], known[18]) == ("unspecified", "mcp_tool", "custom")


def test_an_enum_value_of_a_newer_peer_is_shown_as_its_number() -> None:
    result = ResultEnvelope()
    result.ParseFromString(b"\x18\x63")
    assert convert.result_json(result)["status"] == 99


def test_of_a_oneof_only_the_set_part_appears() -> None:
    mapping = ExternalMapping()
    mapping.mcp.tool_name = "x"
    assert MessageJson(()).convert(mapping).keys() == {"mcp"}


def test_only_bytes_of_json_are_declared_as_such() -> None:
    exchanged = [
        *(ToolManifest.DESCRIPTOR, ResultEnvelope.DESCRIPTOR, PreviewInvocationResponse.DESCRIPTOR),
        *(
            InvocationEvent.DESCRIPTOR,
            GetToolSchemasResponse.DESCRIPTOR,
            DelegateTokenResponse.DESCRIPTOR,
            LoggedRecord.DESCRIPTOR,
        ),
        *(kind for method in FORWARDED.values() for kind in (method.rpc.input_type, method.rpc.output_type)),
    ]
    names = {
        field.full_name
        for message in exchanged
        for descriptor in _reachable(message)
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_BYTES
    }
    blobs = {
        *("toolmesh.executor.v1.ContentPart.blob", "toolmesh.executor.v1.PersistedResult.preview"),
        # The exact bytes that the log hashes, and hashes.
        *("toolmesh.audit.v1.LoggedRecord.canonical_json", "toolmesh.audit.v1.LoggedRecord.leaf_hash"),
        *("toolmesh.audit.v1.ShardLink.root_hash", "toolmesh.audit.v1.PayloadErasure.leaf_hash"),
    }
    assert names - blobs == convert.JSON_FIELDS


def _reachable(descriptor: Any, seen: set[Any] | None = None) -> set[Any]:
    seen = set() if seen is None else seen
    if descriptor not in seen:
        seen.add(descriptor)
        for field in descriptor.fields:
            if field.message_type is not None:
                _reachable(field.message_type, seen)
    return seen


def test_a_request_carries_exactly_what_was_given() -> None:
    params = {"tool": "echo", "arguments": {"n": 2**64 - 1}, "timeout_ms": 5, "session_id": "s"}
    request = convert.invoke_request(params)
    assert request.arguments == b'{"n":18446744073709551615}'
    assert json_format.MessageToDict(request).keys() == {"tool", "arguments", "sessionId"}


def test_absent_arguments_stay_absent() -> None:
    assert convert.invoke_request({"tool": "echo"}).arguments == b""


def test_numbers_that_grow_when_written_out_cannot_exceed_the_hop() -> None:
    with pytest.raises(MeshError) as caught:
        convert.invoke_request({"tool": "echo", "arguments": {"n": [1e15] * 200_000}})
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


def test_a_group_carries_its_calls_and_what_they_depend_on() -> None:
    calls = [{"tool": "a"}, {"tool": "b", "depends_on": [0], "on_failure": "cancel_siblings", "priority": 9}]
    request = convert.group_request({"calls": calls})
    assert [call.request.tool for call in request.calls] == ["a", "b"]
    assert list(request.calls[1].depends_on) == [0]
    assert [call.on_failure for call in request.calls] == [SIBLING_FAILURE_UNSPECIFIED, SIBLING_FAILURE_CANCEL_SIBLINGS]
    assert request.calls[1].request.priority == 9


def test_a_message_may_hold_others_of_its_own_kind() -> None:
    message = Value(list_value=ListValue(values=[Value(string_value="inner")]))
    assert shown(MessageJson(()).convert(message)) == {"list_value": {"values": [{"string_value": "inner"}]}}
