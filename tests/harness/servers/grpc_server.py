"""A gRPC server with reflection (v1alpha only), whose services are described here and not by generated code."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2 as dpb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection

SERVICE, ORDER = "shop.v1.Orders", ".shop.v1.Order"
_FIELD = dpb.FieldDescriptorProto


def file_descriptor(*, number: int = 1) -> dpb.FileDescriptorProto:
    """Return the file of the service. `number` is that of the order's id."""
    field = [
        _FIELD(name="id", number=number, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL),
        _FIELD(name="amount", number=7, type=_FIELD.TYPE_INT64, label=_FIELD.LABEL_OPTIONAL),
        _FIELD(name="tags", number=3, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_REPEATED),
        _FIELD(name="kind", number=4, type=_FIELD.TYPE_ENUM, type_name=".shop.v1.Kind", label=_FIELD.LABEL_OPTIONAL),
        _FIELD(
            name="next", number=5, type=_FIELD.TYPE_MESSAGE, type_name=".shop.v1.Order", label=_FIELD.LABEL_OPTIONAL
        ),
        _FIELD(name="note", number=6, type=_FIELD.TYPE_BYTES, label=_FIELD.LABEL_OPTIONAL),
    ]
    kinds = [dpb.EnumValueDescriptorProto(name=f"KIND_{name}", number=n) for n, name in enumerate(("NONE", "GIFT"))]
    reads = dpb.MethodOptions(idempotency_level=dpb.MethodOptions.NO_SIDE_EFFECTS)
    types: dict[str, Any] = {"input_type": ORDER, "output_type": ORDER}
    method = [
        dpb.MethodDescriptorProto(name="Get", options=reads, **types),
        dpb.MethodDescriptorProto(name="List", options=reads, server_streaming=True, **types),
        dpb.MethodDescriptorProto(name="Hang", options=reads, **types),
        dpb.MethodDescriptorProto(name="Fail", options=reads, **types),
        dpb.MethodDescriptorProto(name="Endless", options=reads, server_streaming=True, **types),
        dpb.MethodDescriptorProto(name="Place", **types),
        dpb.MethodDescriptorProto(name="Upload", client_streaming=True, **types),
    ]
    return dpb.FileDescriptorProto(
        name="shop/v1/orders.proto",
        package="shop.v1",
        syntax="proto3",
        message_type=[dpb.DescriptorProto(name="Order", field=field)],
        enum_type=[dpb.EnumDescriptorProto(name="Kind", value=kinds)],
        service=[dpb.ServiceDescriptorProto(name="Orders", method=method)],
    )


class Orders:
    """Answers with the order that it got, and its metadata."""

    def __init__(self, file: dpb.FileDescriptorProto) -> None:
        self.pool = DescriptorPool()
        self.pool.Add(file)
        self.order: Any = GetMessageClass(self.pool.FindMessageTypeByName("shop.v1.Order"))
        self.seen: list[Any] = []
        self.deadlines: list[float] = []
        self.status = grpc.StatusCode.UNAVAILABLE
        self.canceled = asyncio.Event()

    async def get(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        self.deadlines.append(context.time_remaining())
        sent = dict(context.invocation_metadata())
        request.note = sent.get("authorization", "").encode()
        return request

    async def list(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for number in range(3):
            yield self.order(id=f"{request.id}-{number}", amount=2**60 + number)

    async def hang(self, request: Any, context: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            self.canceled.set()

    async def fail(self, request: Any, context: Any) -> Any:
        self.seen.append(request)
        await context.abort(self.status, "the text of the server")

    async def endless(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            yield self.order(note=b"x" * 65536)

    def handler(self) -> grpc.GenericRpcHandler:
        codec: dict[str, Any] = {
            "request_deserializer": self.order.FromString,
            "response_serializer": self.order.SerializeToString,
        }
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Get": unary(self.get, **codec),
                "Place": unary(self.get, **codec),
                "Hang": unary(self.hang, **codec),
                "Fail": unary(self.fail, **codec),
                "List": stream(self.list, **codec),
                "Endless": stream(self.endless, **codec),
            },
        )


@asynccontextmanager
async def orders_server(
    *, port: int = 0, number: int = 1, with_reflection: bool = True
) -> AsyncIterator[tuple[Orders, int]]:
    """Serve orders on a port of the loopback interface."""
    orders = Orders(file_descriptor(number=number))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((orders.handler(),))
    if with_reflection:
        reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], server, pool=orders.pool)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield orders, bound
    finally:
        await server.stop(None)


@contextmanager
def orders_process() -> Iterator[int]:
    """Serve orders in a process of its own, and return the port."""
    with subprocess.Popen([sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


async def _serve() -> None:
    async with orders_server() as (_, port):
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
