"""Asks a server for its descriptors: gRPC reflection v1, or v1alpha where a server has only that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection_pb2 as pb

from services.executor.adapters.upstreams.grpc.methods import INFRASTRUCTURE
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

MAX_FILES, MAX_BYTES, MAX_SERVICES = 1024, 8 * 1024 * 1024, 256
_VERSIONS = ("v1", "v1alpha")
_SECONDS = 20.0


class Reflection:
    """One reading of a server."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Iterable[tuple[str, str]]) -> None:
        self._channel, self._metadata = channel, tuple(metadata)
        self.version = ""
        self.services: list[str] = []
        self.files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        self._size = 0

    async def read(self) -> None:
        """Read every service with its files. Raises ServerLostError."""
        for version in _VERSIONS:
            self.version = version
            try:
                await self._read()
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED and version != _VERSIONS[-1]:
                    continue
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise ServerLostError("the server has no reflection; connect with a descriptor set") from None
                raise ServerLostError(f"the server answered with the gRPC status {error.code().name}") from None
            except TimeoutError:
                raise ServerLostError("the server's reflection took too long") from None
            else:
                return

    async def _read(self) -> None:
        async with asyncio.timeout(_SECONDS):
            answer = await self._ask(pb.ServerReflectionRequest(list_services=""))
            named = [service.name for service in answer.list_services_response.service]
            self.services = [name for name in named if not name.startswith(INFRASTRUCTURE)][:MAX_SERVICES]
            for name in self.services:
                self._keep(await self._ask(pb.ServerReflectionRequest(file_containing_symbol=name)))
            while missing := {each for file in self.files.values() for each in file.dependency} - self.files.keys():
                for name in sorted(missing):
                    self._keep(await self._ask(pb.ServerReflectionRequest(file_by_filename=name)))
                    if name not in self.files:
                        raise ServerLostError("the server does not have a file that its descriptors import")

    async def _ask(self, question: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
        """Ask one question on a stream of its own.

        grpc.aio reports INTERNAL where a server ends a stream, as with UNIMPLEMENTED, before a `write` on it has ended.
        A request that is sent together with the opening of the stream gets the status of the server.
        """
        method = self._channel.unary_stream(
            f"/grpc.reflection.{self.version}.ServerReflection/ServerReflectionInfo",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        call = method(question, timeout=_SECONDS, metadata=self._metadata)
        try:
            answer = await call.read()
        finally:
            call.cancel()
        if not isinstance(answer, pb.ServerReflectionResponse):
            raise ServerLostError("the server's reflection ended without an answer")
        if answer.HasField("error_response"):
            raise ServerLostError("the server's reflection does not describe what it names")
        return answer

    def _keep(self, answer: pb.ServerReflectionResponse) -> None:
        for content in answer.file_descriptor_response.file_descriptor_proto:
            self._size += len(content)
            if self._size > MAX_BYTES or len(self.files) >= MAX_FILES:
                raise ServerLostError(f"the server has more than {MAX_FILES} files or {MAX_BYTES} bytes of descriptors")
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(content)
            except DecodeError:
                raise ServerLostError("the server's descriptors cannot be read") from None
            self.files.setdefault(file.name, file)
