"""One function per JSON-RPC method: convert, one call to a peer, convert back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from libs.common.call_context import serving
from services.gateway import convert, convert_reading

if TYPE_CHECKING:
    from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceAsyncStub
    from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceAsyncStub
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class Handlers:
    """The handlers of all methods, for validated parameters. Peers receive the caller's token, trace and deadline."""

    def __init__(
        self,
        executor: ExecutorServiceAsyncStub,
        registry: RegistryServiceAsyncStub,
        discovery: DiscoveryServiceAsyncStub,
        tokens: TokenServiceAsyncStub,
        audit: AuditServiceAsyncStub,
        usage: UsageServiceAsyncStub,
        description: Mapping[str, Any],
    ) -> None:
        self._executor, self._registry, self._discovery = executor, registry, discovery
        self._tokens, self._audit, self._usage, self._description = tokens, audit, usage, description

    def by_method(self) -> Mapping[str, Handler]:
        """Return the handler of each method."""
        return {
            "tools.invoke": self.invoke,
            "tools.invoke_group": self.invoke_group,
            "tools.preview": self.preview,
            "results.fetch": self.fetch_result,
            "tools.list": self.list_tools,
            "tools.get": self.get_tool,
            "tools.resolve": self.resolve_tool,
            "tools.search": self.search_tools,
            "tools.surface": self.compile_surface,
            "tools.schemas": self.get_tool_schemas,
            "tokens.delegate": self.delegate_token,
            "tokens.narrow": self.narrow_token,
            "audit.get": self.get_record,
            "audit.query": self.query_records,
            "usage.get": self.get_usage,
            "usage.top": self.list_top_usage,
            "rpc.discover": self.discover,
        }

    async def invoke(self, params: dict[str, Any]) -> Any:
        """Run one tool."""
        serving().tool = params["tool"]
        response = await self._executor.Invoke(convert.invoke_request(params))
        return convert.result_json(response.result)

    async def invoke_group(self, params: dict[str, Any]) -> Any:
        """Run several calls as one group."""
        return convert.group_json(await self._executor.InvokeGroup(convert.group_request(params)))

    async def preview(self, params: dict[str, Any]) -> Any:
        """Preview a call."""
        serving().tool = params["tool"]
        return convert.preview_json(await self._executor.PreviewInvocation(convert.preview_request(params)))

    async def fetch_result(self, params: dict[str, Any]) -> Any:
        """Read a piece of a stored result."""
        pieces = [piece async for piece in self._executor.FetchResult(convert.fetch_request(params))]
        return convert.piece_json(pieces)

    async def list_tools(self, params: dict[str, Any]) -> Any:
        """List tools."""
        return convert.list_json(await self._registry.ListTools(convert.list_request(params)))

    async def get_tool(self, params: dict[str, Any]) -> Any:
        """Return one tool and its versions."""
        return convert.get_json(await self._registry.GetTool(convert.get_request(params)))

    async def resolve_tool(self, params: dict[str, Any]) -> Any:
        """Return the version that a reference means."""
        response = await self._registry.ResolveTool(convert.resolve_request(params))
        return convert.version_json(response.version)

    async def search_tools(self, params: dict[str, Any]) -> Any:
        """Search tools."""
        return convert.message_json(await self._discovery.SearchTools(convert_reading.search_request(params)))

    async def compile_surface(self, params: dict[str, Any]) -> Any:
        """Compile a surface."""
        return convert.message_json(await self._discovery.CompileSurface(convert_reading.surface_request(params)))

    async def get_tool_schemas(self, params: dict[str, Any]) -> Any:
        """Return the schemas of tools."""
        return convert.message_json(await self._discovery.GetToolSchemas(convert_reading.schemas_request(params)))

    async def delegate_token(self, params: dict[str, Any]) -> Any:
        """Derive a token for an agent."""
        return convert.message_json(await self._tokens.DelegateToken(convert_reading.delegate_request(params)))

    async def narrow_token(self, params: dict[str, Any]) -> Any:
        """Derive a token for one tool."""
        return convert.message_json(await self._tokens.NarrowToken(convert_reading.narrow_request(params)))

    async def get_record(self, params: dict[str, Any]) -> Any:
        """Return one audit record."""
        return convert.message_json(await self._audit.GetRecord(convert_reading.record_request(params)))

    async def query_records(self, params: dict[str, Any]) -> Any:
        """Read a page of audit records."""
        return convert.message_json(await self._audit.QueryRecords(convert_reading.query_request(params)))

    async def get_usage(self, params: dict[str, Any]) -> Any:
        """Count calls."""
        return convert.message_json(await self._usage.GetUsage(convert_reading.usage_request(params)))

    async def list_top_usage(self, params: dict[str, Any]) -> Any:
        """Rank usage."""
        return convert.message_json(await self._usage.ListTopUsage(convert_reading.top_request(params)))

    async def discover(self, params: dict[str, Any]) -> Any:
        """Describe the methods."""
        return self._description
