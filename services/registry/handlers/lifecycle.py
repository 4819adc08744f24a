"""The RPCs of the lifecycle service, in the order of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as rpc
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.registry.convert import lifecycle as convert
from services.registry.domain.lifecycle.change_state import change_tool, change_version
from services.registry.domain.lifecycle.deprecate_version import deprecate_version, sunset_version, undeprecate_version
from services.registry.domain.lifecycle.lifecycle import Verb
from services.registry.domain.lifecycle.list_transitions import list_transitions
from services.registry.domain.lifecycle.remove_version import remove_version
from services.registry.domain.model import VersionHead
from services.registry.domain.ports import Catalogue, Histories, Wakeup
from services.registry.domain.trust.usage import UsageReader


class LifecycleHandlers(rpc.LifecycleServiceServicer):
    """Serves lifecycle changes. The RPC chain has already authenticated and authorized the caller."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        histories: Histories,
        usage: UsageReader,
        wakeup: Wakeup,
        clock: Clock,
        journal: Log,
    ) -> None:
        self._catalogue, self._histories, self._usage = catalogue, histories, usage
        self._wakeup, self._clock, self._journal = wakeup, clock, journal

    async def PublishVersion(self, request: pb.PublishVersionRequest, context: Any) -> pb.PublishVersionResponse:
        return pb.PublishVersionResponse(version=await self._version(Verb.PUBLISH, request))

    async def DeprecateVersion(self, request: pb.DeprecateVersionRequest, context: Any) -> pb.DeprecateVersionResponse:
        notice, change_request = convert.deprecation_notice_of(request), convert.change_request_of(request, serving())
        head = await deprecate_version(
            request.name, notice, change_request, catalogue=self._catalogue, wakeup=self._wakeup, clock=self._clock
        )
        return pb.DeprecateVersionResponse(version=self._log_change(Verb.DEPRECATE, head))

    async def UndeprecateVersion(
        self, request: pb.UndeprecateVersionRequest, context: Any
    ) -> pb.UndeprecateVersionResponse:
        head = await undeprecate_version(
            request.name,
            convert.change_request_of(request, serving()),
            catalogue=self._catalogue,
            wakeup=self._wakeup,
            clock=self._clock,
        )
        return pb.UndeprecateVersionResponse(version=self._log_change(Verb.UNDEPRECATE, head))

    async def SunsetVersion(self, request: pb.SunsetVersionRequest, context: Any) -> pb.SunsetVersionResponse:
        change_request = convert.change_request_of(request, serving())
        head = await sunset_version(
            request.name, change_request, catalogue=self._catalogue, wakeup=self._wakeup, clock=self._clock
        )
        return pb.SunsetVersionResponse(version=self._log_change(Verb.SUNSET, head))

    async def RemoveVersion(self, request: pb.RemoveVersionRequest, context: Any) -> pb.RemoveVersionResponse:
        outcome = await remove_version(
            request.name,
            convert.change_request_of(request, serving()),
            force=request.force,
            catalogue=self._catalogue,
            usage=self._usage,
            wakeup=self._wakeup,
            clock=self._clock,
        )
        self._log_change(Verb.REMOVE if outcome.removed else Verb.EXTEND, outcome.head)
        return convert.removal_response(outcome)

    async def DisableTool(self, request: pb.DisableToolRequest, context: Any) -> pb.DisableToolResponse:
        return pb.DisableToolResponse(versions=await self._tool(Verb.DISABLE, request))

    async def EnableTool(self, request: pb.EnableToolRequest, context: Any) -> pb.EnableToolResponse:
        return pb.EnableToolResponse(versions=await self._tool(Verb.ENABLE, request))

    async def QuarantineTool(self, request: pb.QuarantineToolRequest, context: Any) -> pb.QuarantineToolResponse:
        return pb.QuarantineToolResponse(versions=await self._tool(Verb.QUARANTINE, request))

    async def ReleaseTool(self, request: pb.ReleaseToolRequest, context: Any) -> pb.ReleaseToolResponse:
        return pb.ReleaseToolResponse(versions=await self._tool(Verb.RELEASE, request))

    async def MarkRequiresSetup(
        self, request: pb.MarkRequiresSetupRequest, context: Any
    ) -> pb.MarkRequiresSetupResponse:
        return pb.MarkRequiresSetupResponse(version=await self._version(Verb.MARK_REQUIRES_SETUP, request))

    async def CompleteSetup(self, request: pb.CompleteSetupRequest, context: Any) -> pb.CompleteSetupResponse:
        return pb.CompleteSetupResponse(version=await self._version(Verb.COMPLETE_SETUP, request))

    async def DeferVersion(self, request: pb.DeferVersionRequest, context: Any) -> pb.DeferVersionResponse:
        return pb.DeferVersionResponse(version=await self._version(Verb.DEFER, request))

    async def LoadVersion(self, request: pb.LoadVersionRequest, context: Any) -> pb.LoadVersionResponse:
        return pb.LoadVersionResponse(version=await self._version(Verb.LOAD, request))

    async def ListTransitions(self, request: pb.ListTransitionsRequest, context: Any) -> pb.ListTransitionsResponse:
        page = await list_transitions(
            request.name,
            request.page_size,
            request.page_token,
            catalogue=self._catalogue,
            histories=self._histories,
        )
        return convert.transitions_response(page)

    async def _version(self, verb: Verb, request: Any) -> ToolVersion:
        change_request = convert.change_request_of(request, serving())
        head = await change_version(
            request.name, verb, change_request, catalogue=self._catalogue, wakeup=self._wakeup, clock=self._clock
        )
        return self._log_change(verb, head)

    async def _tool(self, verb: Verb, request: Any) -> Sequence[ToolVersion]:
        change_request = convert.change_request_of(request, serving())
        heads = await change_tool(
            request.name, verb, change_request, catalogue=self._catalogue, wakeup=self._wakeup, clock=self._clock
        )
        return [self._log_change(verb, head) for head in heads]

    def _log_change(self, verb: Verb, head: VersionHead) -> ToolVersion:
        self._journal.info("version changed", version=head.name, verb=verb.value, state=head.standing.state.value)
        return convert.version(head)
