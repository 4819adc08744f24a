"""One function per JSON-RPC method: convert, one call to a peer, convert back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from services.gateway import convert

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class Handlers:
    """The handlers of all methods, for validated parameters. Peers receive the caller's token, trace and deadline."""

    def __init__(
        self, executor: ExecutorServiceAsyncStub, registry: RegistryServiceAsyncStub, description: Mapping[str, Any]
    ) -> None:
        self._executor, self._registry, self._description = executor, registry, description

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
            "rpc.discover": self.discover,
        }

    async def invoke(self, params: dict[str, Any]) -> Any:
        """Run one tool."""
        response = await self._executor.Invoke(convert.invoke_request(params))
        return convert.result_json(response.result)

    async def invoke_group(self, params: dict[str, Any]) -> Any:
        """Run several calls as one group."""
        return convert.group_json(await self._executor.InvokeGroup(convert.group_request(params)))

    async def preview(self, params: dict[str, Any]) -> Any:
        """Preview a call."""
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

    async def discover(self, params: dict[str, Any]) -> Any:
        """Describe the methods."""
        return self._description
