"""Maps the definition of an MCP tool to a manifest. Pure.

What the server leaves open takes the meaning that is safest: a tool without annotations changes something for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump
from libs.common.json.schema_guard import DIALECT
from services.registry.domain.publishing.manifest import Manifest, MutationClass
from services.registry.domain.upstreams.definition import (
    MappedTool,
    description_of,
    effects_of,
    parse_definition,
    safety_of,
    title_of,
    tool_id,
)
from services.registry.domain.upstreams.strict_schema import make_strict
from services.registry.domain.upstreams.upstream import Endpoint, HttpEndpoint, Overlay, StdioEndpoint, Upstream

# The methods of a server, other than `tools/call`, that executors pass on as tools under these names.
PASSED_METHODS = frozenset(
    (
        *("prompts/list", "prompts/get", "completion/complete"),
        *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe"),
    )
)
# The result of a tool without an output schema: the content that the server answers with.
CONTENT_SCHEMA = {
    "$schema": DIALECT,
    "type": "object",
    "properties": {
        "content": {
            "type": "array",
            "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
        }
    },
    "required": ["content"],
    "additionalProperties": False,
}


def map_mcp_tool(upstream: Upstream, native_name: str, definition: bytes) -> MappedTool:
    """Return the manifest of a tool, as its first version. Raises UnusableDefinitionError."""
    tool = parse_definition(definition)
    notes: list[str] = []
    schema = make_strict(tool.get("inputSchema", {"type": "object"}), notes, "arguments")
    output = tool.get("outputSchema")
    result = CONTENT_SCHEMA if output is None else make_strict(output, notes, "", closed=False)
    overlay = upstream.overlay_of(native_name)
    annotations = tool.get("annotations")
    hints = annotations if isinstance(annotations, Mapping) else {}
    mutation = mutation_class(hints, overlay)
    found = digest(tool)
    document: dict[str, Any] = {
        "schema_version": "0.2.0",
        "tool_id": tool_id(native_name),
        "namespace": upstream.upstream_id,
        "version": "1.0.0",
        "title": title_of((tool.get("title"), hints.get("title")), native_name),
        "description": description_of(tool.get("description"), upstream, native_name, notes),
        "provider": upstream.upstream_id,
        "kind": "mcp_tool",
        "protocol": "mcp",
        "tags": ["mcp", "upstream"],
        "input": {"schema": schema, "argument_mode": "object"},
        "output": {"schema": result},
        "interface": {"safety": safety_of(mutation)},
        "execution": _execution(upstream, native_name, found),
        "permission": {"required_scopes": ["tools:call"], "approval": "by_policy"},
        "mutation_class": mutation.value,
        "observability": {"audit_detail": "summary"},
        "external_mappings": [{"mcp": _mapping(upstream, native_name, content_result=output is None)}],
        **effects_of(upstream, native_name, mutation, repeatable=hints.get("idempotentHint") is True),
    }
    return MappedTool(Manifest(document), found, tuple(notes))


def mutation_class(hints: Mapping[str, Any], overlay: Overlay | None) -> MutationClass:
    """Return what the deployment says, else what the server says, else the worst.

    Undoing needs a compensating tool, which only the deployment can name, so a server cannot claim to be reversible.
    """
    if overlay is not None:
        return overlay.mutation_class
    return MutationClass.READ_ONLY if hints.get("readOnlyHint") is True else MutationClass.WRITE_IRREVERSIBLE


def _execution(upstream: Upstream, native_name: str, found: str) -> dict[str, Any]:
    entry_point = {"upstream": upstream.upstream_id, "tool": native_name, "definition": found}
    execution: dict[str, Any] = {
        "runner": "mcp",
        "entry_point": dump(entry_point).decode(),
        "timeout_class": "long_running",
        "timeout_default": "60s",
        "external_service": upstream.upstream_id,
        "cancellation_supported": True,
        "progress_supported": True,
    }
    network = _network(upstream)
    return execution | ({"access_tier": "network", "network_policy": network} if network else {})


def _network(upstream: Upstream) -> dict[str, Any]:
    endpoint: Endpoint = upstream.endpoint
    if isinstance(endpoint, HttpEndpoint):
        url = urlsplit(endpoint.url)
        # An IPv6 address is no domain, so the manifest cannot name it.
        if not url.hostname or ":" in url.hostname:
            return {}
        return {"allowed_domains": [url.hostname], **({"allowed_ports": [url.port]} if url.port else {})}
    hosts = endpoint.allowed_hosts if isinstance(endpoint, StdioEndpoint) else ()
    return {"allowed_domains": list(hosts)} if hosts else {}


def _mapping(upstream: Upstream, native_name: str, *, content_result: bool) -> dict[str, Any]:
    mapping: dict[str, Any] = {"server_id": upstream.upstream_id, "tool_name": native_name}
    if content_result:
        mapping["content_result"] = True
    return {**mapping, "method": native_name} if native_name in PASSED_METHODS else mapping
