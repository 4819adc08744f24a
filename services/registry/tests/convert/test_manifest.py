"""Conversions between manifest messages and documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from hypothesis import given, settings
from hypothesis import strategies as st
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse_object
from services.registry.convert.manifest import manifest_of, message_of
from services.registry.domain.publishing.manifest import Manifest
from services.registry.tests.manifests import everything, reader

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def messages(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of a type, as keyword arguments: each field present or absent, of each oneof at most one member."""
    oneofs = {field.name: oneof for oneof in descriptor.oneofs for field in oneof.fields}
    plain = {f.name: fields(f) for f in descriptor.fields if f.name not in oneofs}
    built = st.fixed_dictionaries({}, optional=plain)
    for oneof in descriptor.oneofs:
        member = st.one_of([st.fixed_dictionaries({f.name: fields(f)}) for f in oneof.fields])
        built = st.tuples(built, member).map(lambda pair: pair[0] | pair[1])
    return built


def fields(field: Any) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(TEXT, TEXT, max_size=3)
    one = messages(kind) if kind is not None else SCALARS.get(field.type, st.integers(-(2**31), 2**31 - 1))
    if kind is not None and kind.full_name == Duration.DESCRIPTOR.full_name:
        one = st.integers(-(10**18), 10**18).map(lambda n: Duration(seconds=int(n / 10**9), nanos=_rest(n)))
    if field.type == FieldDescriptor.TYPE_ENUM:
        one = st.sampled_from([value.number for value in field.enum_type.values])
    return st.lists(one, max_size=2) if field.is_repeated else one


def _rest(nanoseconds: int) -> int:
    return (abs(nanoseconds) % 10**9) * (-1 if nanoseconds < 0 else 1)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = {
    FieldDescriptor.TYPE_STRING: TEXT,
    FieldDescriptor.TYPE_BYTES: JSON.map(dump),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
}


@settings(max_examples=150, deadline=None)
@given(messages(pb.ToolManifest.DESCRIPTOR))
def test_any_manifest_survives_the_way_there_and_back(arguments: dict[str, Any]) -> None:
    message = pb.ToolManifest(**arguments)
    manifest = manifest_of(message)
    assert message_of(manifest) == message
    assert parse_object(manifest.payload) == manifest.document
    assert manifest_of(message_of(manifest)).digest == manifest.digest


def test_every_field_of_the_contract_survives() -> None:
    message = everything()
    assert {f.full_name for f, _ in _set_fields(message)} == {f.full_name for f in _all_fields(message.DESCRIPTOR)}
    manifest = manifest_of(message)
    assert message_of(manifest) == message
    assert message_of(Manifest(parse_object(manifest.payload))) == message


def test_the_document_form() -> None:
    message = reader()
    message.execution.timeout_max.FromMilliseconds(2500)
    message.interface.SetInParent()
    document = manifest_of(message).document
    assert document["mutation_class"] == "read_only"
    assert document["execution"] == {"runner": "remote", "timeout_class": "standard", "timeout_max": "2.500s"}
    assert document["input"]["schema"]["required"] == ["text"]
    assert document["input"]["examples"][0]["result"] == {"echoed": "a"}
    assert document["interface"] == {}
    assert "priority" not in document
    assert "idempotency" not in document


def test_every_field_of_bytes_holds_json() -> None:
    """The conversion relies on it: other bytes would need a different form."""
    names = {f.full_name for f in _all_fields(pb.ToolManifest.DESCRIPTOR) if f.type == FieldDescriptor.TYPE_BYTES}
    prefix = "toolmesh.registry.v1."
    assert {name.removeprefix(prefix) for name in names} == {
        "InputContract.schema",
        "InputContract.runtime_schema",
        "ContractExample.arguments",
        "ContractExample.result",
        "OutputContract.schema",
        "OutputContract.error_schema",
        "McpMapping.meta",
    }


def test_a_digest_is_of_the_meaning_of_embedded_json_not_of_its_writing() -> None:
    message, rewritten = reader(), reader()
    schema = json.loads(message.input.schema)
    turned = dict(reversed(list(schema.items())))
    rewritten.input.schema = json.dumps(turned, indent=3).replace("20", "20.0").encode()
    assert rewritten.input.schema != message.input.schema
    assert manifest_of(rewritten).digest == manifest_of(message).digest
    changed = reader(changelog="other words")
    assert manifest_of(changed).digest != manifest_of(message).digest


def test_a_result_of_null_is_not_no_result() -> None:
    message = reader()
    message.input.examples[0].result = b"null"
    shown = manifest_of(message).examples[0]
    assert (shown.has_result, shown.result) == (True, None)
    assert message_of(manifest_of(message)) == message


def test_all_unreadable_parts_are_named_at_once() -> None:
    message = reader()
    message.input.schema = b'{"a":1,"a":2}'
    message.input.examples[0].result = b"NaN"
    message.output.schema = b"[" * 100 + b"]" * 100
    with pytest.raises(MeshError) as caught:
        manifest_of(message)
    assert caught.value.reason is Reason.INVALID_JSON
    paths = [violation.path for violation in caught.value.violations]
    assert paths == ["manifest.input.schema", "manifest.input.examples[0].result", "manifest.output.schema"]


def test_a_manifest_that_is_nested_too_deeply_is_too_large() -> None:
    message = reader()
    message.output.schema = b"[" * 100 + b"]" * 100
    with pytest.raises(MeshError) as caught:
        manifest_of(message)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


def test_a_promise_of_a_newer_contract_is_refused_rather_than_dropped() -> None:
    newer = pb.ToolManifest.FromString(reader().SerializeToString() + b"\xf8\x3f\x01")
    with pytest.raises(MeshError) as caught:
        manifest_of(newer)
    assert caught.value.reason is Reason.INVALID_REQUEST


def test_an_impossible_duration_and_an_unknown_enum_value_are_refused() -> None:
    message = reader()
    message.idempotency.window.nanos = 2_000_000_000
    message.scheduling.interrupt = 99  # type: ignore[assignment]
    with pytest.raises(MeshError) as caught:
        manifest_of(message)
    assert {v.path for v in caught.value.violations} == {"manifest.idempotency.window", "manifest.scheduling.interrupt"}


def _all_fields(descriptor: Any, seen: set[str] | None = None) -> Iterator[Any]:
    seen = set() if seen is None else seen
    if descriptor.full_name in seen or descriptor.full_name.startswith("google."):
        return
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        yield field
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from _all_fields(field.message_type, seen)


def _set_fields(message: Any) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield field, value
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith("google."):
            continue
        for item in value if field.is_repeated else [value]:
            yield from _set_fields(item)
