"""Finds and describes tools for the meta-tools, under the names of the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson
from toolmesh.registry.v1.discovery_service_pb2 import (
    TOOL_USABILITY_NEEDS_APPROVAL,
    GetToolSchemasRequest,
    SearchFilter,
    SearchToolsRequest,
)
from toolmesh.registry.v1.tool_manifest_pb2 import MutationClass
from toolmesh.registry.v1.tool_trust_pb2 import LookAlike

from libs.common.tool_names import ToolName, split_version_name
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.tools.content import json_result
from services.gateway.mcp.tools.tool_definition import look_alikes
from services.gateway.protojson import words

if TYPE_CHECKING:
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceAsyncStub

_DEFAULT_RESULTS = 10
# More than are shown are asked for, because a view by list filters what comes back.
_MOST_ASKED = 100
_MUTATION = words(MutationClass.DESCRIPTOR)


class FindTools:
    """Searches and describes tools through the registry's DiscoveryService, as the caller."""

    def __init__(self, discovery: DiscoveryServiceAsyncStub) -> None:
        self._discovery = discovery

    async def search(self, arguments: dict[str, Any], context: McpContext) -> Result:
        """Return the tools of the view that fit a query, the best first."""
        most = int(arguments.get("max_results", _DEFAULT_RESULTS))
        view = context.view
        namespaces = sorted({scan.namespace for scan in view.scans} - {""})
        request = SearchToolsRequest(
            query=arguments["query"],
            filter=SearchFilter(namespaces=namespaces[:64], tags=view.tags),
            max_results=_MOST_ASKED if view.tools else most,
        )
        response = await self._discovery.SearchTools(request)
        tools: list[dict[str, Any]] = []
        for found in response.tools:
            name = view.name_of(ToolName.parse(found.tool))
            if name and len(tools) < most:
                kind = _MUTATION[found.mutation_class]
                shown = {"name": name, "title": found.title, "description": found.description, "kind": kind}
                remarks = _approval(found.usability == TOOL_USABILITY_NEEDS_APPROVAL) | _alike(found.look_alikes)
                tools.append(shown | remarks)
        return json_result({"tools": tools, "matched": response.total_filtered})

    async def describe(self, arguments: dict[str, Any], context: McpContext) -> Result:
        """Return the schemas of tools of the view, and the names that cannot be described to this caller."""
        names = {context.view.tool_of(name).qualified: name for name in arguments["names"]}
        response = await self._discovery.GetToolSchemas(GetToolSchemasRequest(tools=list(names)))
        tools = []
        for schema in response.schemas:
            tool, version = split_version_name(schema.version)
            shown = {
                "name": context.view.name_of(tool),
                "version": version,
                "digest": schema.digest,
                "title": schema.title,
                "description": schema.description,
                "kind": _MUTATION[schema.mutation_class],
                "inputSchema": orjson.loads(schema.input_schema or b"{}"),
                "outputSchema": orjson.loads(schema.output_schema or b"{}"),
            }
            tools.append(shown | _approval(schema.needs_approval) | _alike(schema.look_alikes))
        return json_result({"tools": tools, "unknown": [names.get(each.tool, each.tool) for each in response.unloaded]})


def _approval(needed: bool) -> dict[str, Any]:
    return {"needs_approval": True} if needed else {}


def _alike(alike: Sequence[LookAlike]) -> dict[str, Any]:
    return {"look_alikes": look_alikes(alike)} if alike else {}
