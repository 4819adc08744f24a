"""Serves gRPC reflection v1, and v1alpha for older clients.

The package of gRPC has v1alpha alone. Both versions have the same messages on the wire, so one servicer answers both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

V1, V1ALPHA = "grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME
METHOD = "ServerReflectionInfo"


def add_reflection(services: Iterable[str], server: Any) -> None:
    """Add both versions of reflection for these services, and for itself."""
    _add_v1_descriptor()
    servicer = reflection.aio.ReflectionServicer([*services, V1, V1ALPHA])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_registered_method_handlers(V1, {METHOD: handler})


def _add_v1_descriptor() -> None:
    """Describe v1 in the default pool, as v1alpha is described there."""
    file = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", "grpc.reflection.v1"
    for message in file.message_type:
        for field in (field for field in message.field if field.type_name):
            field.type_name = _renamed(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type, method.output_type = _renamed(method.input_type), _renamed(method.output_type)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())


def _renamed(name: str) -> str:
    return name.replace(".grpc.reflection.v1alpha.", ".grpc.reflection.v1.")
