"""One gRPC server of an upstream: the channel to it, and its methods as they are now. A source of tools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from toolmesh.registry.v1 import upstream_pb2
from toolmesh.registry.v1 import upstream_service_pb2 as pb

from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from services.executor.adapters.upstreams.grpc.methods import (
    DescriptorProblemError,
    Method,
    build_pool,
    describe_methods,
)
from services.executor.adapters.upstreams.grpc.reflection import MAX_BYTES, Reflection
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.source import bounded_tools

Connect = Callable[[], Awaitable[grpc.aio.Channel]]


@dataclass(frozen=True, slots=True)
class Description:
    """The methods of a server, with the digests of their definitions."""

    protocol: str
    methods: Mapping[str, Method]
    digests: Mapping[str, str]


class GrpcServer:
    """Implements Source. The channel is opened when it is needed, and again after it was lost."""

    poll_seconds = 30.0

    def __init__(self, endpoint: upstream_pb2.GrpcEndpoint, connect: Connect) -> None:
        self.endpoint, self._connect = endpoint, connect
        self._channel: grpc.aio.Channel | None = None
        self._opening, self._describing = asyncio.Lock(), asyncio.Lock()
        self._read_at = 0.0
        self._description: Description | None = None

    async def channel(self) -> grpc.aio.Channel:
        """Return a channel that was connected. Raises ServerLostError."""
        async with self._opening:
            if self._channel is None:
                self._channel = await self._connect()
            return self._channel

    async def recent_description(self) -> Description:
        """Return the methods as they were a short while ago. Raises ServerLostError."""
        async with self._describing:
            if self._description is None or time.monotonic() - self._read_at > self.poll_seconds:
                return await self.describe()
            return self._description

    async def describe(self) -> Description:
        """Read the methods. Raises ServerLostError."""
        if self.endpoint.descriptor_set:
            files = await asyncio.to_thread(_read_set, self.endpoint.descriptor_set)
            services = [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.service]
            protocol = "gRPC, descriptor set"
            # A server that is away is not offered as ready.
            await self.channel()
        else:
            reflection = Reflection(await self.channel(), ())
            await reflection.read()
            files, services = list(reflection.files.values()), reflection.services
            protocol = f"gRPC, reflection {reflection.version}"
        selection = tuple(self.endpoint.methods)
        try:
            self._description = await asyncio.to_thread(_describe, protocol, files, services, selection)
        except DescriptorProblemError as problem:
            raise ServerLostError(str(problem)) from None
        self._read_at = time.monotonic()
        return self._description

    async def discover(self) -> pb.Discovery:
        """Implement `Source.discover`."""
        try:
            description = await self.describe()
        except ServerLostError:
            await self.close()
            raise
        tools = [
            pb.DiscoveredTool(native_name=each.name, definition=each.definition, problem=each.problem)
            for each in description.methods.values()
        ]
        return pb.Discovery(
            server_name=self.endpoint.address[:255], protocol_version=description.protocol, tools=bounded_tools(tools)
        )

    async def close(self) -> None:
        """Close the channel; the next use opens another."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _describe(
    protocol: str, files: list[descriptor_pb2.FileDescriptorProto], services: list[str], selection: tuple[str, ...]
) -> Description:
    methods = describe_methods(build_pool(files), services, selection)
    digests = {name: digest(parse_object(each.definition)) for name, each in methods.items() if each.definition}
    return Description(protocol, methods, digests)


def _read_set(path: str) -> list[descriptor_pb2.FileDescriptorProto]:
    """Read a descriptor set. Blocking. Raises ServerLostError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ServerLostError(f"the descriptor set has more than {MAX_BYTES} bytes")
        return list(descriptor_pb2.FileDescriptorSet.FromString(content).file)
    except OSError:
        raise ServerLostError("the descriptor set cannot be read on the executor's machine") from None
    except DecodeError:
        raise ServerLostError("the descriptor set is not a serialized FileDescriptorSet") from None
