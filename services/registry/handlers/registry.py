"""The RPCs of the registry service, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.rpc.stream_slots import StreamSlots, stream_holder
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.registry.convert import registry as convert
from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog.get_tool import get_tool
from services.registry.domain.catalog.list_tool_versions import list_tool_versions
from services.registry.domain.catalog.list_tools import ToolPage, list_tools, only_usable
from services.registry.domain.catalog.resolve_tool import resolve_tool
from services.registry.domain.catalog.watch_tools import Event, watch_tools
from services.registry.domain.catalog.watch_usable import watch_usable
from services.registry.domain.compatibility.check_compatibility import check_compatibility
from services.registry.domain.compatibility.negotiate_schema import negotiate_schema
from services.registry.domain.errors import caller_required
from services.registry.domain.health.ports import VersionHealths
from services.registry.domain.ports import CallPolicy, Catalogue, ChangeFeed, ChangeLog, SchemaChecker, Wakeup
from services.registry.domain.publishing.register_tool import register_tool
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY, ScanPolicy
from services.registry.domain.runners.ports import Announcements
from services.registry.domain.trust.ports import TrustScores
from services.registry.handlers.response_cache import ResponseCache


class RegistryHandlers(rpc.RegistryServiceServicer):
    """Serves the registry. The RPC chain has already authenticated and authorized the caller."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        cache: ResponseCache,
        log: ChangeLog,
        feed: ChangeFeed,
        schemas: SchemaChecker,
        policy: CallPolicy,
        runners: Announcements,
        trust: TrustScores,
        health: VersionHealths,
        wakeup: Wakeup,
        clock: Clock,
        journal: Log,
        slots: StreamSlots,
        scan_policy: ScanPolicy = DEFAULT_POLICY,
    ) -> None:
        self._slots = slots
        self._scan_policy = scan_policy
        self._journal, self._runners, self._trust, self._health = journal, runners, trust, health
        self._catalogue, self._cache, self._log, self._feed = catalogue, cache, log, feed
        self._schemas, self._policy, self._wakeup, self._clock = schemas, policy, wakeup, clock

    async def RegisterTool(self, request: pb.RegisterToolRequest, context: Any) -> pb.RegisterToolResponse:
        registration = await register_tool(
            manifest_of(request.manifest),
            convert.actor_of(serving()),
            catalogue=self._catalogue,
            schemas=self._schemas,
            runners=self._runners,
            wakeup=self._wakeup,
            clock=self._clock,
            beside=[manifest_of(each) for each in request.beside],
            draft=request.draft,
            scan_policy=self._scan_policy,
        )
        head, created = registration.version.head, registration.created
        self._journal.info("registered", version=head.name, created=created, request_id=request.request_id)
        for other in registration.beside:
            self._journal.info("registered", version=other.head.name, created=True, request_id=request.request_id)
        return convert.register_response(registration, self._runners.current(), self._trust, self._health)

    async def GetTool(self, request: pb.GetToolRequest, context: Any) -> pb.GetToolResponse:
        tool, versions = await get_tool(request.name, catalogue=self._catalogue)
        runners = self._runners.current()
        shown = [convert.tool_version(version, self._trust, runners, self._health) for version in versions]
        return pb.GetToolResponse(tool=convert.tool(tool), versions=shown)

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> Any:
        if request.usable_only:
            if serving().identity is None:
                raise caller_required()
            usable = await only_usable(await self._page(request), self._policy)
            return convert.list_response(usable, self._runners.current(), self._trust, self._health)
        return await self._cache.get_or_create("ListTools", request, lambda: self._create_list(request))

    async def _create_list(self, request: pb.ListToolsRequest) -> tuple[pb.ListToolsResponse, float]:
        page = await self._page(request)
        response = convert.list_response(page, self._runners.current(), self._trust, self._health)
        return response, convert.response_expiry(listed.version for listed in page.tools)

    async def _page(self, request: pb.ListToolsRequest) -> ToolPage:
        return await list_tools(
            convert.selection_of(request, serving()),
            request.page_size,
            request.page_token,
            catalogue=self._catalogue,
            clock=self._clock,
        )

    async def ResolveTool(self, request: pb.ResolveToolRequest, context: Any) -> Any:
        return await self._cache.get_or_create("ResolveTool", request, lambda: self._create_resolved(request))

    async def _create_resolved(self, request: pb.ResolveToolRequest) -> tuple[pb.ResolveToolResponse, float]:
        version = await resolve_tool(
            request.tool, request.version_constraint, catalogue=self._catalogue, clock=self._clock
        )
        shown = convert.tool_version(version, self._trust, self._runners.current(), self._health)
        return pb.ResolveToolResponse(version=shown), convert.response_expiry([version])

    async def ListToolVersions(self, request: pb.ListToolVersionsRequest, context: Any) -> pb.ListToolVersionsResponse:
        page = await list_tool_versions(
            request.tool, convert.states_of(request), request.page_size, request.page_token, catalogue=self._catalogue
        )
        return convert.versions_response(page, self._trust, self._health)

    async def CheckCompatibility(
        self, request: pb.CheckCompatibilityRequest, context: Any
    ) -> pb.CheckCompatibilityResponse:
        result = await check_compatibility(
            convert.candidate_of(request), request.baseline, catalogue=self._catalogue, schemas=self._schemas
        )
        return convert.compatibility_response(result)

    async def NegotiateSchema(self, request: pb.NegotiateSchemaRequest, context: Any) -> pb.NegotiateSchemaResponse:
        negotiation = await negotiate_schema(
            request.tool,
            request.version_constraint,
            convert.expectations_of(request),
            catalogue=self._catalogue,
            schemas=self._schemas,
            clock=self._clock,
        )
        return convert.negotiation_response(negotiation)

    async def WatchTools(self, request: pb.WatchToolsRequest, context: Any) -> AsyncIterator[pb.WatchToolsResponse]:
        with self._slot():
            async with aclosing(self._watch(request.resume_token)) as events:
                async for event in events:
                    yield convert.watch_response(event, self._trust, self._health)

    def _slot(self) -> AbstractContextManager[None]:
        # Services hold none: callers that open many watches must not keep an executor from its catalog.
        return self._slots.hold(*stream_holder()) if serving().identity is not None else nullcontext()

    def _watch(self, resume_token: str) -> AsyncGenerator[Event, None]:
        if serving().identity is None:
            return self._all_events(resume_token)
        # What the caller may see may have changed meanwhile, so its watch always begins with a snapshot.
        everything = self._all_events("")
        return watch_usable(everything, catalogue=self._catalogue, policy=self._policy, clock=self._clock)

    def _all_events(self, resume_token: str) -> AsyncGenerator[Event, None]:
        return watch_tools(resume_token, log=self._log, feed=self._feed, trust=self._trust, health=self._health)
