"""Maps an operation of a WebSocket service to a manifest. Pure.

The definition is the form that the executor gives an operation, which the deployment described.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from libs.common.errors import Violation
from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump
from libs.common.json.schema_guard import DIALECT
from services.registry.domain.publishing.manifest import Manifest, MutationClass
from services.registry.domain.upstreams.definition import (
    MappedTool,
    UnusableDefinitionError,
    description_of,
    effects_of,
    parse_definition,
    safety_of,
    title_of,
    tool_id,
)
from services.registry.domain.upstreams.strict_schema import make_strict
from services.registry.domain.upstreams.upstream import Upstream, WebSocketEndpoint

_PORTS = {"ws": 80, "wss": 443}


def map_websocket_operation(
    upstream: Upstream, endpoint: WebSocketEndpoint, native_name: str, definition: bytes
) -> MappedTool:
    """Return the manifest of an operation, as its first version. Raises UnusableDefinitionError."""
    operation = parse_definition(definition)
    notes: list[str] = []
    mutation, found = _mutation_class(upstream, native_name, operation), digest(operation)
    document: dict[str, Any] = {
        "schema_version": "0.2.0",
        "tool_id": tool_id(native_name),
        "namespace": upstream.upstream_id,
        "version": "1.0.0",
        "title": title_of((), native_name),
        "description": description_of(operation.get("description"), upstream, native_name, notes),
        "provider": upstream.upstream_id,
        "kind": "custom",
        "protocol": "custom",
        "tags": ["upstream", "websocket"],
        "input": {"schema": _input_schema(operation, notes), "argument_mode": "object"},
        "output": {"schema": _result(operation, notes)},
        "interface": {"safety": safety_of(mutation)},
        "execution": _execution(upstream, endpoint, native_name, found),
        "permission": {"required_scopes": ["tools:call"], "approval": "by_policy"},
        "mutation_class": mutation.value,
        "observability": {"audit_detail": "summary"},
        **effects_of(upstream, native_name, mutation, repeatable=False),
    }
    return MappedTool(Manifest(document), found, tuple(notes))


def _mutation_class(upstream: Upstream, native_name: str, operation: dict[str, Any]) -> MutationClass:
    overlay = upstream.overlay_of(native_name)
    if overlay is not None:
        return overlay.mutation_class
    return MutationClass.READ_ONLY if operation.get("read_only") is True else MutationClass.WRITE_IRREVERSIBLE


def _input_schema(operation: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    schema = operation.get("input")
    if not isinstance(schema, dict):
        raise UnusableDefinitionError(Violation("input", "websocket.schema", "is not described"))
    return dict(make_strict({"$schema": DIALECT, **schema}, notes, "arguments"))


def _result(operation: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    schema = operation.get("output")
    if not isinstance(schema, dict):
        notes.append("the result is not checked: no schema describes it")
        schema = {}
    if operation.get("stream") is not True:
        return {"$schema": DIALECT, **schema}
    notes.append("the messages of the stream are one result, after its end")
    item = {key: value for key, value in schema.items() if key not in ("$schema", "$defs")}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": {"messages": {"type": "array", "items": item}},
        "required": ["messages"],
        **definitions,
    }


def _execution(upstream: Upstream, endpoint: WebSocketEndpoint, native_name: str, found: str) -> dict[str, Any]:
    entry_point = {"upstream": upstream.upstream_id, "tool": native_name, "definition": found}
    parts = urlsplit(endpoint.url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    # An IPv6 address is no domain, so the manifest cannot name it.
    network = {} if ":" in host else {"allowed_domains": [host], "allowed_ports": [port]}
    return {
        "runner": "websocket",
        "entry_point": dump(entry_point).decode(),
        "timeout_class": "long_running",
        "timeout_default": "60s",
        "external_service": upstream.upstream_id,
        "cancellation_supported": True,
        "progress_supported": True,
        **({"access_tier": "network", "network_policy": network} if network else {}),
    }
