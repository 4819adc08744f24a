"""Describes a tool of the registry as an MCP tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from toolmesh.registry.v1.tool_manifest_pb2 import (
    IDEMPOTENCY_MODE_NATURAL,
    MUTATION_CLASS_READ_ONLY,
    MUTATION_CLASS_WRITE_REVERSIBLE,
    McpMapping,
    ToolManifest,
)
from toolmesh.registry.v1.tool_trust_pb2 import LookAlike
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.tool_names import ToolName
from services.gateway.mcp.protocol import (
    DIGEST_META_KEY,
    LOOK_ALIKES_META_KEY,
    STATELESS_VERSIONS,
    TASKS_VERSION,
    TOOL_META_KEY,
)

# A token of JSON has about four bytes, rarely less than three.
_BYTES_PER_TOKEN = 3


def definition(version: ToolVersion, name: str, revision: str) -> dict[str, Any]:
    """Return the definition of a tool under a name of the view, as a revision of MCP has it."""
    stateless = revision in STATELESS_VERSIONS
    manifest = version.manifest
    shown: dict[str, Any] = {
        "name": name,
        "title": manifest.title,
        "description": manifest.description,
        "inputSchema": {"type": "object"} | orjson.loads(manifest.input.schema or b"{}"),
        "annotations": hints_of(manifest),
        "_meta": {
            TOOL_META_KEY: ToolName(manifest.namespace, manifest.tool_id).version(manifest.version),
            DIGEST_META_KEY: version.digest,
        },
    }
    if version.trust.look_alikes:
        shown["_meta"][LOOK_ALIKES_META_KEY] = look_alikes(version.trust.look_alikes)
    if revision == TASKS_VERSION:
        shown["execution"] = {"taskSupport": "optional"}
    output = orjson.loads(manifest.output.schema or b"null")
    if native_mapping(manifest).content_result:
        # The server declares none: its content is shown as it is.
        return shown
    if isinstance(output, dict) and (stateless or output.get("type") == "object"):
        # Revisions with sessions know structured results that are objects, and no others.
        shown["outputSchema"] = output
    return shown


def look_alikes(alike: Iterable[LookAlike]) -> list[dict[str, Any]]:
    """Return the names of other owners that are easily taken for a tool's."""
    return [{"name": each.name, "kind": each.kind, "older": each.older} for each in alike]


def native_mapping(manifest: ToolManifest) -> McpMapping:
    """Return what the tool is on an MCP server; an empty mapping for a tool of no such server."""
    return next((each.mcp for each in manifest.external_mappings if each.HasField("mcp")), McpMapping())


def hints_of(manifest: ToolManifest) -> dict[str, bool]:
    """Return the hints of a tool: by its mutation class, its idempotency and its network."""
    read_only = manifest.mutation_class == MUTATION_CLASS_READ_ONLY
    network = manifest.execution.network_policy
    return {
        "readOnlyHint": read_only,
        "destructiveHint": not read_only and manifest.mutation_class != MUTATION_CLASS_WRITE_REVERSIBLE,
        "idempotentHint": read_only or manifest.idempotency.mode == IDEMPOTENCY_MODE_NATURAL,
        "openWorldHint": bool(network.allowed_domains) and not network.deny_all_egress,
    }


def estimated_tokens(shown: dict[str, Any]) -> int:
    """Return how many tokens a definition has at most, in all likelihood."""
    return len(orjson.dumps(shown)) // _BYTES_PER_TOKEN + 1
