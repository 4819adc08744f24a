"""Answers of gRPC methods as JSON, bounded before they take memory."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import any_pb2, struct_pb2
from google.protobuf import descriptor_pb2 as dpb
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.adapters.upstreams.grpc.channel import MAX_SENT_BYTES
from services.executor.adapters.upstreams.grpc.codec import decode_answers, encode_request

LIMIT = 4 * 1024 * 1024
_FIELD = dpb.FieldDescriptorProto


def repeated(name: str, number: int, **kind: Any) -> _FIELD:
    return _FIELD(name=name, number=number, label=_FIELD.LABEL_REPEATED, **kind)


@pytest.fixture(scope="module")
def series() -> Descriptor:
    """A message with lists of numbers, of messages, of anything, and with a map."""
    pool = DescriptorPool()
    for known in (any_pb2.DESCRIPTOR, struct_pb2.DESCRIPTOR):
        pool.AddSerializedFile(known.serialized_pb)
    entry = dpb.DescriptorProto(
        name="NamedEntry",
        field=[
            _FIELD(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL),
            _FIELD(name="value", number=2, type=_FIELD.TYPE_INT32, label=_FIELD.LABEL_OPTIONAL),
        ],
        options=dpb.MessageOptions(map_entry=True),
    )
    fields = [
        repeated("numbers", 1, type=_FIELD.TYPE_INT64),
        repeated("parts", 2, type=_FIELD.TYPE_MESSAGE, type_name=".m.Series"),
        repeated("packed", 3, type=_FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Any"),
        repeated("named", 4, type=_FIELD.TYPE_MESSAGE, type_name=".m.Series.NamedEntry"),
        repeated("reals", 5, type=_FIELD.TYPE_DOUBLE),
        _FIELD(
            name="free",
            number=6,
            type=_FIELD.TYPE_MESSAGE,
            type_name=".google.protobuf.Struct",
            label=_FIELD.LABEL_OPTIONAL,
        ),
    ]
    file = dpb.FileDescriptorProto(
        name="m.proto",
        package="m",
        syntax="proto3",
        dependency=["google/protobuf/any.proto", "google/protobuf/struct.proto"],
        message_type=[dpb.DescriptorProto(name="Series", field=fields, nested_type=[entry])],
    )
    pool.Add(file)
    return pool.FindMessageTypeByName("m.Series")


def reason_of(series: Descriptor, *contents: bytes) -> Reason:
    with pytest.raises(MeshError) as caught:
        decode_answers(series, contents, LIMIT)
    return caught.value.reason


def test_answers_are_json_with_every_kind_of_field(series: Descriptor) -> None:
    make: Any = GetMessageClass(series)
    answer = make(numbers=[2**60], parts=[make(reals=[1.5])], named={"a": 1}, free={"x": [1, {"y": "z"}]})
    packed = any_pb2.Any(type_url="type.googleapis.com/m.Series", value=make(numbers=[7]).SerializeToString())
    answer.packed.add().MergeFromString(packed.SerializeToString())
    content = answer.SerializeToString()
    decoded = {
        "numbers": [str(2**60)],
        "parts": [{"reals": [1.5]}],
        "packed": [{"@type": "type.googleapis.com/m.Series", "numbers": ["7"]}],
        "named": {"a": 1},
        "free": {"x": [1.0, {"y": "z"}]},
    }
    assert decode_answers(series, [content, content], LIMIT) == [decoded, decoded]


def test_an_answer_of_too_many_values_is_refused_wherever_they_are(series: Descriptor) -> None:
    make: Any = GetMessageClass(series)
    beyond = make(numbers=[*bytes(MAX_VALUES), 1]).SerializeToString()
    inside = make(parts=[make(parts=[make(numbers=[*bytes(MAX_VALUES), 1])])]).SerializeToString()
    assert len(inside) < LIMIT
    packed = make()
    packed.packed.add(type_url="type.googleapis.com/m.Series", value=beyond)
    halves = make(numbers=bytes(MAX_VALUES // 2 + 1)).SerializeToString()
    for contents in ([beyond], [inside], [packed.SerializeToString()], [halves, halves]):
        assert reason_of(series, *contents) is Reason.RESULT_TOO_LARGE


def test_an_answer_of_too_many_bytes_or_of_none_of_its_message_is_refused(series: Descriptor) -> None:
    assert reason_of(series, b"\x22" + bytes(LIMIT)) is Reason.RESULT_TOO_LARGE
    assert reason_of(series, b"\xff no message") is Reason.RESULT_INVALID
    unknown: Any = GetMessageClass(series)()
    unknown.packed.add(type_url="type.googleapis.com/example.Unknown", value=b"x")
    assert reason_of(series, unknown.SerializeToString()) is Reason.RESULT_INVALID


def test_a_request_that_is_larger_than_what_is_sent_is_refused(series: Descriptor) -> None:
    numbers = [1] * (MAX_SENT_BYTES // 8 + 1)
    with pytest.raises(MeshError) as caught:
        encode_request(series, {"reals": numbers})
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    assert len(encode_request(series, {"reals": numbers[:100]})) < MAX_SENT_BYTES
