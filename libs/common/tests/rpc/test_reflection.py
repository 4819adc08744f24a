"""Reflection v1 and v1alpha, through a server that knows both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection_pb2 as pb

from libs.common.rpc.reflection import METHOD, V1, V1ALPHA, add_reflection


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    add_reflection([health.SERVICE_NAME], server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_services_are_listed_and_described(channel: grpc.aio.Channel, version: str) -> None:
    async def ask(**question: Any) -> Any:
        method = channel.stream_stream(
            f"/{version}/{METHOD}",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        return await anext(aiter(method(iter([pb.ServerReflectionRequest(**question)]))))

    listed = await ask(list_services="")
    names = {service.name for service in listed.list_services_response.service}
    assert names == {health.SERVICE_NAME, V1, V1ALPHA}
    for name in names:
        answer = await ask(file_containing_symbol=name)
        files = [FileDescriptorProto.FromString(file) for file in answer.file_descriptor_response.file_descriptor_proto]
        assert name in {f"{file.package}.{service.name}" for file in files for service in file.service}
