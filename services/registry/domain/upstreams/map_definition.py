"""Maps the definition of an MCP tool to a manifest. Pure.

What the server leaves open takes the meaning that is safest: a tool without annotations changes something for good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump, parse_object
from libs.common.json.schema_guard import DIALECT
from services.registry.domain.publishing.manifest import Manifest, MutationClass
from services.registry.domain.upstreams.strict_schema import make_strict
from services.registry.domain.upstreams.upstream import HttpEndpoint, Overlay, Upstream

MAX_DEFINITION_BYTES = 64 * 1024
_MAX_NAME, _MAX_TITLE, _MAX_DESCRIPTION = 128, 255, 2000
_SHORTEST_NAME, _SHORTEST_TITLE, _SHORTEST_DESCRIPTION = 3, 3, 10
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")
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


@dataclass(frozen=True, slots=True)
class MappedTool:
    """The manifest of a definition, and what it says differently."""

    manifest: Manifest
    digest: str
    notes: tuple[str, ...]


class UnusableDefinitionError(Exception):
    """A definition cannot become a manifest. The violations say why."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__()
        self.violations = violations


def definition_digest(definition: bytes) -> str:
    """Return the digest of a definition, equal for definitions that differ only in JSON formatting.

    Raises UnusableDefinitionError if it is no JSON object or too large.
    """
    return digest(_parse(definition))


def map_definition(upstream: Upstream, native_name: str, definition: bytes) -> MappedTool:
    """Return the manifest of a tool, as its first version. Raises UnusableDefinitionError."""
    tool = _parse(definition)
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
        "title": _title(tool, hints, native_name),
        "description": _description(tool, upstream, native_name, notes),
        "provider": upstream.upstream_id,
        "kind": "mcp_tool",
        "protocol": "mcp",
        "tags": ["mcp", "upstream"],
        "input": {"schema": schema, "argument_mode": "object"},
        "output": {"schema": result},
        "interface": {"safety": _safety(mutation)},
        "execution": _execution(upstream, native_name, found),
        "permission": {"required_scopes": ["tools:call"], "approval": "by_policy"},
        "mutation_class": mutation.value,
        "observability": {"audit_detail": "summary"},
        "external_mappings": [{"mcp": _mapping(upstream, native_name)}],
        **_effects(upstream, hints, mutation, overlay),
    }
    return MappedTool(Manifest(document), found, tuple(notes))


def tool_id(native_name: str) -> str:
    """Return the id of a native name: `getCurrentTime` and `get-current-time` become `get_current_time`."""
    spaced = _WORD_STARTS.sub("_", native_name)
    text = _OTHER_CHARACTERS.sub("_", spaced.lower()).strip("_")[:_MAX_NAME]
    return text if len(text) >= _SHORTEST_NAME and text[0].isalpha() else f"tool_{text}".rstrip("_")


def mutation_class(hints: Mapping[str, Any], overlay: Overlay | None) -> MutationClass:
    """Return what the deployment says, else what the server says, else the worst.

    Undoing needs a compensating tool, which only the deployment can name, so a server cannot claim to be reversible.
    """
    if overlay is not None:
        return overlay.mutation_class
    return MutationClass.READ_ONLY if hints.get("readOnlyHint") is True else MutationClass.WRITE_IRREVERSIBLE


def _parse(definition: bytes) -> dict[str, Any]:
    if len(definition) > MAX_DEFINITION_BYTES:
        message = f"has more than {MAX_DEFINITION_BYTES} bytes"
        raise UnusableDefinitionError(Violation("definition", "definition.size", message))
    try:
        return parse_object(definition)
    except MeshError as error:
        raise UnusableDefinitionError(Violation("definition", "definition.json", error.message)) from None


def _title(tool: Mapping[str, Any], hints: Mapping[str, Any], native_name: str) -> str:
    titles = (tool.get("title"), hints.get("title"), native_name)
    title = next((each for each in titles if isinstance(each, str) and len(each.strip()) >= _SHORTEST_TITLE), "")
    return (title.strip() or f"Tool {native_name}")[:_MAX_TITLE]


def _description(tool: Mapping[str, Any], upstream: Upstream, native_name: str, notes: list[str]) -> str:
    text = tool.get("description")
    described = text.strip() if isinstance(text, str) else ""
    if len(described) < _SHORTEST_DESCRIPTION:
        return f"{described or native_name} (a tool of the upstream {upstream.upstream_id})"
    if len(described) > _MAX_DESCRIPTION:
        notes.append(f"the description is cut after {_MAX_DESCRIPTION} characters")
    return described[:_MAX_DESCRIPTION]


def _safety(mutation: MutationClass) -> dict[str, Any]:
    claims = {"read_only": True, "non_destructive": True} if mutation is MutationClass.READ_ONLY else {}
    return {"concurrency_safe": True, "sandbox_tier": "process", **claims}


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
    endpoint = upstream.endpoint
    if isinstance(endpoint, HttpEndpoint):
        url = urlsplit(endpoint.url)
        # An IPv6 address is no domain, so the manifest cannot name it.
        if not url.hostname or ":" in url.hostname:
            return {}
        return {"allowed_domains": [url.hostname], **({"allowed_ports": [url.port]} if url.port else {})}
    return {"allowed_domains": list(endpoint.allowed_hosts)} if endpoint.allowed_hosts else {}


def _mapping(upstream: Upstream, native_name: str) -> dict[str, str]:
    return {"server_id": upstream.upstream_id, "tool_name": native_name}


def _effects(
    upstream: Upstream, hints: Mapping[str, Any], mutation: MutationClass, overlay: Overlay | None
) -> dict[str, Any]:
    if mutation is MutationClass.READ_ONLY:
        return {"idempotency": {"mode": "natural", "uncertain_outcome": "repeat"}}
    repeats = hints.get("idempotentHint") is True
    return {
        "side_effects": [{"resource": f"upstream:{upstream.upstream_id}", "operation": "update"}],
        "idempotency": {
            "mode": "natural" if repeats else "key_required",
            "uncertain_outcome": "repeat" if repeats else "fail",
        },
        # The mesh previews it from the manifest: which server would be sent what, and the declared effects.
        "dry_run_supported": True,
        **({"compensation_tool": overlay.compensation_tool} if overlay and overlay.compensation_tool else {}),
    }
