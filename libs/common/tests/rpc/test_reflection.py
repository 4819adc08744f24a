"""Reflection v1 and v1alpha, through a server that knows both: for peers of the mesh and for callers of the edge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection_pb2 as pb

from libs.common.auth.peers import EDGE, OPERATOR
from libs.common.call_context import _CURRENT, Call
from libs.common.rpc.reflection import MAX_QUESTIONS, METHOD, V1, V1ALPHA, add_reflection
from libs.common.trace_context import continue_trace


class AsPeer(grpc.aio.ServerInterceptor):
    """Stands for the chain: a call comes from the peer that its metadata names."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        peer = dict(details.invocation_metadata).get("peer")
        # Without a peer nothing is entered, and nothing is left of an earlier test either.
        _CURRENT.set(None if peer is None else Call(details.method, continue_trace(None), peer=peer))
        return await continuation(details)


def _add_files() -> None:
    """Add the file of an internal service, and the file of a public service that imports it, to the default pool."""
    inner = FileDescriptorProto(name="t/inner.proto", package="t", syntax="proto3")
    inner.message_type.add(name="Shared")
    inner.service.add(name="Internal").method.add(name="Do", input_type=".t.Shared", output_type=".t.Shared")
    outer = FileDescriptorProto(name="t/outer.proto", package="t", syntax="proto3", dependency=[inner.name])
    outer.service.add(name="Public").method.add(name="Do", input_type=".t.Shared", output_type=".t.Shared")
    for file in (inner, outer):
        descriptor_pool.Default().AddSerializedFile(file.SerializeToString())


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    # A port of its own: with SO_REUSEPORT the kernel may share it with a server of another test process.
    server = grpc.aio.server(interceptors=[AsPeer()], options=[("grpc.so_reuseport", 0)])
    _add_files()
    add_reflection([health.SERVICE_NAME], server, public=["t.Public"])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


def stream(channel: grpc.aio.Channel, version: str, peer: str | None, questions: list[Any]) -> Any:
    method = channel.stream_stream(
        f"/{version}/{METHOD}",
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    metadata = () if peer is None else (("peer", peer),)
    return aiter(method(iter(questions), metadata=metadata))


async def ask(channel: grpc.aio.Channel, version: str, peer: str | None, **question: Any) -> Any:
    return await anext(stream(channel, version, peer, [pb.ServerReflectionRequest(**question)]))


async def list_services(channel: grpc.aio.Channel, version: str, peer: str | None) -> set[str]:
    answer = await ask(channel, version, peer, list_services="")
    return {service.name for service in answer.list_services_response.service}


@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_services_are_listed_and_described(channel: grpc.aio.Channel, version: str) -> None:
    names = await list_services(channel, version, OPERATOR)
    assert names == {health.SERVICE_NAME, V1, V1ALPHA}
    for name in names:
        answer = await ask(channel, version, OPERATOR, file_containing_symbol=name)
        files = [FileDescriptorProto.FromString(file) for file in answer.file_descriptor_response.file_descriptor_proto]
        assert name in {f"{file.package}.{service.name}" for file in files for service in file.service}


@pytest.mark.parametrize("peer", [EDGE, None])
async def test_a_caller_sees_nothing_that_is_not_public(channel: grpc.aio.Channel, peer: str | None) -> None:
    assert await list_services(channel, V1, peer) == {"t.Public", V1, V1ALPHA}
    for symbol in ("t.Public", "t.Shared"):
        answer = await ask(channel, V1, peer, file_containing_symbol=symbol)
        assert answer.file_descriptor_response.file_descriptor_proto
    for question in (
        {"file_containing_symbol": health.SERVICE_NAME},
        {"file_containing_symbol": "t.Internal"},
        {"file_containing_symbol": "grpc.health.v1.HealthCheckRequest"},
        {"file_by_filename": "grpc/health/v1/health.proto"},
    ):
        answer = await ask(channel, V1, peer, **question)
        assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_a_stream_of_a_caller_has_a_limited_number_of_questions(channel: grpc.aio.Channel) -> None:
    questions = [pb.ServerReflectionRequest(list_services="")] * (MAX_QUESTIONS + 1)
    answers = 0
    with pytest.raises(grpc.aio.AioRpcError):
        async for _ in stream(channel, V1, EDGE, questions):
            answers += 1
    assert answers == MAX_QUESTIONS
