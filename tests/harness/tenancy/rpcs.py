"""Every RPC of the mesh, from the descriptors, with its policy row; and calls to any of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from libs.common.errors import Reason
from libs.common.rpc.policy import Row
from libs.common.rpc.status import from_rpc_error

RPC_SERVICES = ["registry", "authz", "executor", "approval", "audit"]


class Rpc(NamedTuple):
    """One RPC of one process."""

    service: str
    method: MethodDescriptor

    @property
    def name(self) -> str:
        """The name without the package: `ApprovalService.GetTicket`."""
        return f"{self.method.containing_service.name}.{self.method.name}"

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def row(self) -> Row:
        return policy(self.service)[self.path]

    def request(self, **fields: Any) -> Message:
        """Make a request."""
        return GetMessageClass(self.method.input_type)(**fields)


class Answer(NamedTuple):
    """The messages of a call, and the reason of its refusal."""

    messages: tuple[Any, ...] = ()
    reason: Reason | None = None


def descriptors(service: str) -> list[ServiceDescriptor]:
    """Return the gRPC services that a process serves: those of all `*_service.proto` of its package."""
    package = importlib.import_module(f"toolmesh.{service}.v1")
    modules = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name.endswith("_service_pb2")]
    files = [importlib.import_module(f"toolmesh.{service}.v1.{name}").DESCRIPTOR for name in sorted(modules)]
    return [descriptor for file in files for descriptor in file.services_by_name.values()]


def rpcs() -> Iterator[Rpc]:
    """Yield every RPC of every process."""
    for service in RPC_SERVICES:
        for descriptor in descriptors(service):
            for method in descriptor.methods:
                yield Rpc(service, method)


def policy(service: str) -> dict[str, Row]:
    """Return the policy rows of a process."""
    return dict(importlib.import_module(f"services.{service}.policy").POLICY)


def call(
    channel: grpc.Channel,
    rpc: Rpc,
    request: Message,
    token: str,
    *,
    is_last: Callable[[Any], bool] = lambda message: False,
    timeout: float = 30.0,
) -> Answer:
    """Call an RPC of any kind. A stream is read to its end, or to the message that `is_last`."""
    method, messages = rpc.method, list[Any]()
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }
    make: Any = kinds[method.client_streaming, method.server_streaming]
    stub: Any = make(
        rpc.path, lambda message: message.SerializeToString(), GetMessageClass(method.output_type).FromString
    )
    metadata = [("authorization", f"Bearer {token}")]
    try:
        response = stub(iter([request]) if method.client_streaming else request, metadata=metadata, timeout=timeout)
        for message in response if method.server_streaming else [response]:
            messages.append(message)
            if is_last(message):
                response.cancel()
                break
    except grpc.RpcError as error:
        return Answer(tuple(messages), from_rpc_error(error).reason)  # type: ignore[arg-type]
    return Answer(tuple(messages))
