"""The RPCs of the namespace service, in the order of the contract."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import namespace_service_pb2 as pb
from toolmesh.registry.v1 import namespace_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.registry.convert import namespace as convert
from services.registry.convert.registry import actor_of, tool
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.namespaces import namespaces
from services.registry.domain.namespaces.move_alias import move_alias
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.ports import Catalogue, Histories, Wakeup


class NamespaceHandlers(rpc.NamespaceServiceServicer):
    """Serves namespaces. The RPC chain has already authenticated and authorized the caller."""

    def __init__(
        self, *, catalogue: Catalogue, histories: Histories, wakeup: Wakeup, clock: Clock, journal: Log
    ) -> None:
        self._catalogue, self._histories = catalogue, histories
        self._wakeup, self._clock, self._journal = wakeup, clock, journal

    async def ClaimNamespace(self, request: pb.ClaimNamespaceRequest, context: Any) -> pb.ClaimNamespaceResponse:
        namespace = await namespaces.claim_namespace(
            request.namespace,
            request.owner,
            request.provider,
            actor_of(serving()),
            catalogue=self._catalogue,
            clock=self._clock,
        )
        return pb.ClaimNamespaceResponse(namespace=self._log_change("claimed", namespace))

    async def TransferNamespace(
        self, request: pb.TransferNamespaceRequest, context: Any
    ) -> pb.TransferNamespaceResponse:
        namespace = await namespaces.transfer_namespace(
            request.name,
            request.owner,
            request.provider,
            request.etag,
            actor_of(serving()),
            catalogue=self._catalogue,
            clock=self._clock,
        )
        return pb.TransferNamespaceResponse(namespace=self._log_change("transferred", namespace))

    async def AddDelegate(self, request: pb.AddDelegateRequest, context: Any) -> pb.AddDelegateResponse:
        namespace = await namespaces.add_delegate(
            request.name, request.subject, actor_of(serving()), catalogue=self._catalogue, clock=self._clock
        )
        return pb.AddDelegateResponse(namespace=self._log_change("shared", namespace))

    async def RemoveDelegate(self, request: pb.RemoveDelegateRequest, context: Any) -> pb.RemoveDelegateResponse:
        namespace = await namespaces.remove_delegate(
            request.name, request.subject, actor_of(serving()), catalogue=self._catalogue, clock=self._clock
        )
        return pb.RemoveDelegateResponse(namespace=self._log_change("unshared", namespace))

    async def GetNamespace(self, request: pb.GetNamespaceRequest, context: Any) -> pb.GetNamespaceResponse:
        namespace = await namespaces.get_namespace(request.name, histories=self._histories)
        return pb.GetNamespaceResponse(namespace=convert.namespace(namespace))

    async def ListNamespaces(self, request: pb.ListNamespacesRequest, context: Any) -> pb.ListNamespacesResponse:
        page = await namespaces.list_namespaces(request.page_size, request.page_token, histories=self._histories)
        return convert.list_response(page)

    async def MoveAlias(self, request: pb.MoveAliasRequest, context: Any) -> pb.MoveAliasResponse:
        change_request = ChangeRequest(actor_of(serving()), reason=request.reason)
        moved = await move_alias(
            request.alias,
            request.from_tool,
            request.to_tool,
            change_request,
            catalogue=self._catalogue,
            wakeup=self._wakeup,
            clock=self._clock,
        )
        self._journal.info("alias moved", alias=request.alias, tool=moved.name.qualified)
        return pb.MoveAliasResponse(tool=tool(moved))

    def _log_change(self, what: str, changed: Namespace) -> pb.Namespace:
        self._journal.info(f"namespace {what}", namespace=changed.namespace, owner=changed.owner)
        return convert.namespace(changed)
