"""Maps a method of a gRPC service to a manifest. Pure.

The definition is the form that the executor gives a method. Its content comes from outside, so it is checked here.
"""

from __future__ import annotations

from typing import Any

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
from services.registry.domain.upstreams.upstream import GrpcEndpoint, Upstream


def map_method(upstream: Upstream, endpoint: GrpcEndpoint, native_name: str, definition: bytes) -> MappedTool:
    """Return the manifest of a method, as its first version. Raises UnusableDefinitionError."""
    method = parse_definition(definition)
    if method.get("client_streaming"):
        message = "takes a stream of messages; a call of a tool sends one"
        raise UnusableDefinitionError(Violation("client_streaming", "grpc.client_streaming", message))
    notes: list[str] = []
    mutation = _mutation_class(upstream, native_name, method)
    service, _, name = native_name.rpartition("/")
    found = digest(method)
    document: dict[str, Any] = {
        "schema_version": "0.2.0",
        "tool_id": tool_id(native_name),
        "namespace": upstream.upstream_id,
        "version": "1.0.0",
        "title": title_of((name,), native_name),
        "description": description_of(f"Calls the method {name} of the gRPC service {service}.", upstream, name, notes),
        "provider": upstream.upstream_id,
        "kind": "grpc_method",
        "protocol": "grpc",
        "tags": ["grpc", "upstream"],
        "input": {"schema": _schema(method, "input"), "argument_mode": "object"},
        "output": {"schema": _result(method, notes)},
        "interface": {"safety": safety_of(mutation)},
        "execution": _execution(upstream, endpoint, native_name, found),
        "permission": {"required_scopes": ["tools:call"], "approval": "by_policy"},
        "mutation_class": mutation.value,
        "observability": {"audit_detail": "summary"},
        "external_mappings": [{"grpc": _mapping(endpoint, native_name, method)}],
        **effects_of(upstream, native_name, mutation, repeatable=method.get("idempotency") == "idempotent"),
    }
    return MappedTool(Manifest(document), found, tuple(notes))


def _mutation_class(upstream: Upstream, native_name: str, method: dict[str, Any]) -> MutationClass:
    """Return what the deployment says, else what the idempotency level says, else the worst."""
    overlay = upstream.overlay_of(native_name)
    if overlay is not None:
        return overlay.mutation_class
    reads = method.get("idempotency") == "no_side_effects"
    return MutationClass.READ_ONLY if reads else MutationClass.WRITE_IRREVERSIBLE


def _schema(method: dict[str, Any], side: str) -> dict[str, Any]:
    schema = method.get(side)
    if not isinstance(schema, dict):
        raise UnusableDefinitionError(Violation(side, "grpc.schema", "is not described"))
    return {"$schema": DIALECT, **schema}


def _result(method: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    schema = _schema(method, "output")
    if not method.get("server_streaming"):
        return schema
    notes.append("the messages of the stream are one result, after its end")
    definitions = schema.pop("$defs", {})
    del schema["$schema"]
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": {"messages": {"type": "array", "items": schema}},
        "required": ["messages"],
        **({"$defs": definitions} if definitions else {}),
    }


def _execution(upstream: Upstream, endpoint: GrpcEndpoint, native_name: str, found: str) -> dict[str, Any]:
    entry_point = {"upstream": upstream.upstream_id, "tool": native_name, "definition": found}
    host, _, port = endpoint.address.rpartition(":")
    # An IPv6 address is no domain, so the manifest cannot name it.
    network = {} if host.startswith("[") else {"allowed_domains": [host], "allowed_ports": [int(port)]}
    return {
        "runner": "grpc",
        "entry_point": dump(entry_point).decode(),
        "timeout_class": "long_running",
        "timeout_default": "60s",
        "external_service": upstream.upstream_id,
        "cancellation_supported": True,
        "progress_supported": True,
        **({"access_tier": "network", "network_policy": network} if network else {}),
    }


def _mapping(endpoint: GrpcEndpoint, native_name: str, method: dict[str, Any]) -> dict[str, str]:
    return {
        "server_address": endpoint.address,
        "method": native_name,
        "descriptor_digest": str(method.get("descriptor", ""))[:128],
    }
