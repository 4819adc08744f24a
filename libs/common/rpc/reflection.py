"""Serves gRPC reflection v1, and v1alpha for older clients.

The package of gRPC has v1alpha alone. Both versions have the same messages on the wire, so one servicer answers both.
Peers of the mesh see the services of this process. Callers who come through the edge see its public services only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from libs.common.auth.peers import EDGE
from libs.common.call_context import current_call
from libs.common.errors import MeshError, Reason

V1, V1ALPHA = "grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME
METHOD = "ServerReflectionInfo"
MAX_QUESTIONS = 256
"""The most questions of a caller on one stream: the edge's rate limit counts the stream once."""


def add_reflection(services: Iterable[str], server: Any, *, public: Iterable[str] = ()) -> None:
    """Add both versions of reflection for these services, and for itself. `public` are described to callers."""
    _add_v1_descriptor()
    servicer = _PeerReflection([*services, V1, V1ALPHA], [*public, V1, V1ALPHA])
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_registered_method_handlers(V1, {METHOD: handler})


class _PeerReflection(reflection_pb2_grpc.ServerReflectionServicer):
    """Answers peers of the mesh from everything in the process, and callers from the public services' files alone."""

    def __init__(self, services: Iterable[str], public: Iterable[str]) -> None:
        names = list(public)
        # The published types say that its method is a coroutine; it is a generator.
        self._inside: Any = reflection.aio.ReflectionServicer(services)
        self._outside: Any = reflection.aio.ReflectionServicer(names, pool=_pool_of(names))

    async def ServerReflectionInfo(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answer each question of a stream."""
        call = current_call()
        outside = call is None or call.peer == EDGE
        servicer = self._outside if outside else self._inside
        questions = _limited(requests) if outside else requests
        async for answer in servicer.ServerReflectionInfo(questions, context):
            yield answer


async def _limited(questions: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Pass on at most MAX_QUESTIONS, then raise RATE_LIMITED."""
    count = 0
    async for question in questions:
        count += 1
        if count > MAX_QUESTIONS:
            raise MeshError(Reason.RATE_LIMITED, retry_after=1.0)
        yield question


def _pool_of(services: Iterable[str]) -> descriptor_pool.DescriptorPool:
    """Return a pool with the files of these services and the files that they import.

    Other services of these files are left out: a public file may import messages from the file of an internal service.
    """
    names, pool, added = set(services), descriptor_pool.DescriptorPool(), set[str]()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        shown = FileDescriptorProto.FromString(file.serialized_pb)
        public = [service for service in shown.service if f"{shown.package}.{service.name}" in names]
        del shown.service[:]
        shown.service.extend(public)
        pool.AddSerializedFile(shown.SerializeToString())

    for name in sorted(names):
        add(descriptor_pool.Default().FindFileContainingSymbol(name))
    return pool


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
