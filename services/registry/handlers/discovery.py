"""The RPCs of the discovery service, in the order of the contract."""

from __future__ import annotations

from typing import Any, Protocol

from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from services.registry.convert import discovery as convert
from services.registry.domain.discovery.compile_surface import compile_surface
from services.registry.domain.discovery.get_tool_schemas import get_tool_schemas
from services.registry.domain.discovery.ports import Language, Searcher
from services.registry.domain.discovery.query_embeddings import QueryEmbeddings
from services.registry.domain.discovery.search_tools import search_tools
from services.registry.domain.discovery.spelling import Spelling
from services.registry.domain.discovery.tokens import TokenCounter
from services.registry.domain.ports import CallPolicy, Catalogue
from services.registry.domain.runners.ports import Announcements
from services.registry.domain.trust.ports import TrustScores


class Directory(Protocol):
    """Provides the search index."""

    async def index(self) -> Searcher:
        """Return the index, as fresh as the change log."""
        ...


class DiscoveryHandlers(rpc.DiscoveryServiceServicer):
    """Serves discovery. The RPC chain has already authenticated and authorized the caller."""

    def __init__(
        self,
        *,
        directory: Directory,
        language: Language,
        spelling: Spelling,
        catalogue: Catalogue,
        policy: CallPolicy,
        runners: Announcements,
        trust: TrustScores,
        clock: Clock,
    ) -> None:
        self._runners, self._policy, self._trust = runners, policy, trust
        self._directory, self._language, self._catalogue, self._clock = directory, language, catalogue, clock
        self._embeddings, self._counter = QueryEmbeddings(language, spelling), TokenCounter(language)

    async def SearchTools(self, request: pb.SearchToolsRequest, context: Any) -> pb.SearchToolsResponse:
        answer = await search_tools(
            convert.query_of(request, serving()),
            tuple(request.names),
            semantic=convert.wants_embeddings(request),
            searcher=await self._directory.index(),
            embeddings=self._embeddings,
            catalogue=self._catalogue,
            policy=self._caller_policy(),
            now=self._clock.now(),
        )
        return convert.search_response(answer, self._language.model, self._runners.current(), self._trust)

    async def CompileSurface(self, request: pb.CompileSurfaceRequest, context: Any) -> pb.CompileSurfaceResponse:
        outcome = await compile_surface(
            convert.surface_request_of(request, serving(), self._runners.current()),
            searcher=await self._directory.index(),
            embeddings=self._embeddings,
            counter=self._counter,
            catalogue=self._catalogue,
            policy=self._caller_policy(),
            trust=self._trust,
            clock=self._clock,
        )
        return convert.surface_response(outcome, serving())

    async def GetToolSchemas(self, request: pb.GetToolSchemasRequest, context: Any) -> pb.GetToolSchemasResponse:
        answer = await get_tool_schemas(
            convert.schema_request_of(request, serving()),
            catalogue=self._catalogue,
            policy=self._caller_policy(),
            trust=self._trust,
            counter=self._counter,
            now=self._clock.now(),
        )
        return convert.schemas_response(answer, self._trust)

    def _caller_policy(self) -> CallPolicy | None:
        """Return the policy, if this call is made for a caller."""
        return self._policy if serving().identity is not None else None
