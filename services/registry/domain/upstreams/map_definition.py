"""Maps the definition of an upstream's tool to a manifest, by the kind of the upstream. Pure."""

from __future__ import annotations

from dataclasses import replace

from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.upstreams.definition import MappedTool
from services.registry.domain.upstreams.kinds.grpc import map_method
from services.registry.domain.upstreams.kinds.mcp import map_mcp_tool
from services.registry.domain.upstreams.kinds.openapi import map_operation
from services.registry.domain.upstreams.kinds.websocket import map_websocket_operation
from services.registry.domain.upstreams.upstream import GrpcEndpoint, OpenApiEndpoint, Upstream, WebSocketEndpoint


def map_definition(upstream: Upstream, native_name: str, definition: bytes) -> MappedTool:
    """Return the manifest of a tool, as its first version. Raises UnusableDefinitionError."""
    mapped = _map_by_kind(upstream, native_name, definition)
    if not upstream.slow_call_time:
        return mapped
    document = mapped.manifest.document
    execution = {**document["execution"], "circuit_breaker": {"slow_call_time": upstream.slow_call_time}}
    return replace(mapped, manifest=Manifest({**document, "execution": execution}))


def _map_by_kind(upstream: Upstream, native_name: str, definition: bytes) -> MappedTool:
    if isinstance(upstream.endpoint, OpenApiEndpoint):
        return map_operation(upstream, upstream.endpoint, native_name, definition)
    if isinstance(upstream.endpoint, GrpcEndpoint):
        return map_method(upstream, upstream.endpoint, native_name, definition)
    if isinstance(upstream.endpoint, WebSocketEndpoint):
        return map_websocket_operation(upstream, upstream.endpoint, native_name, definition)
    return map_mcp_tool(upstream, native_name, definition)
