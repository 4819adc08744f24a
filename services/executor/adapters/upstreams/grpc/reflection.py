"""Asks a server for its descriptors: gRPC reflection v1, or v1alpha where a server has only that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection_pb2 as pb

from services.executor.adapters.upstreams.grpc.methods import INFRASTRUCTURE
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

MAX_FILES, MAX_BYTES, MAX_SERVICES = 1024, 8 * 1024 * 1024, 256
_VERSIONS = ("v1", "v1alpha")
_SECONDS = 20.0


if TYPE_CHECKING:
    _Stream = grpc.aio.StreamStreamCall[Message, pb.ServerReflectionResponse]


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
            else:
                return

    async def _read(self) -> None:
        method = self._channel.stream_stream(
            f"/grpc.reflection.{self.version}.ServerReflection/ServerReflectionInfo",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        call = method(timeout=_SECONDS, metadata=self._metadata)
        try:
            answer = await self._ask(call, pb.ServerReflectionRequest(list_services=""))
            named = [service.name for service in answer.list_services_response.service]
            self.services = [name for name in named if not name.startswith(INFRASTRUCTURE)][:MAX_SERVICES]
            for name in self.services:
                self._keep(await self._ask(call, pb.ServerReflectionRequest(file_containing_symbol=name)))
            while missing := {each for file in self.files.values() for each in file.dependency} - self.files.keys():
                for name in sorted(missing):
                    self._keep(await self._ask(call, pb.ServerReflectionRequest(file_by_filename=name)))
                    if name not in self.files:
                        raise ServerLostError("the server does not have a file that its descriptors import")
            await call.done_writing()
        finally:
            call.cancel()

    async def _ask(self, call: _Stream, question: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
        await call.write(question)
        answer = await call.read()
        if not isinstance(answer, pb.ServerReflectionResponse):
            # The end of the stream: the status says why.
            code = await call.code()
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
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
