"""Maps an operation of an OpenAPI document to a manifest of the runner HTTP. Pure.

The definition is the form that `services/executor/domain/openapi` gives an operation. Its content comes from outside,
so every part is checked here again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from libs.common.errors import Violation
from libs.common.json.canonical import digest
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
from services.registry.domain.upstreams.kinds.openapi_parameters import place_parameters
from services.registry.domain.upstreams.kinds.openapi_security import choose_secrets
from services.registry.domain.upstreams.upstream import OpenApiEndpoint, Upstream

_READING, _REPEATABLE = frozenset({"get", "head"}), frozenset({"get", "head", "put", "delete"})
_METHODS = _REPEATABLE | {"post", "patch"}
_MAX_URL = 2048
_PORTS = {"http": 80, "https": 443}
_OPEN_RESULT = {"$schema": DIALECT}


def map_operation(upstream: Upstream, endpoint: OpenApiEndpoint, native_name: str, definition: bytes) -> MappedTool:
    """Return the manifest of an operation, as its first version. Raises UnusableDefinitionError."""
    operation = parse_definition(definition)
    notes: list[str] = []
    problems: list[Violation] = []
    method, url = _request_line(operation, problems)
    placed = place_parameters(operation, notes, problems)
    secrets = choose_secrets(operation, endpoint, notes, problems)
    result = _result_schema(operation, notes, problems)
    if problems:
        raise UnusableDefinitionError(*problems)
    mutation = _mutation_class(upstream, native_name, method)
    http: dict[str, Any] = {"method": method, "url": url, **placed.request, **({"secrets": secrets} if secrets else {})}
    if endpoint.failover:
        http["failover_origins"] = list(endpoint.failover)
    document: dict[str, Any] = {
        "schema_version": "0.2.0",
        "tool_id": tool_id(native_name),
        "namespace": upstream.upstream_id,
        "version": "1.0.0",
        "title": title_of((operation.get("summary"),), native_name),
        "description": _description(operation, upstream, native_name, notes),
        "provider": upstream.upstream_id,
        "kind": "openapi_operation",
        "protocol": "openapi",
        "tags": ["openapi", "upstream"],
        "input": {"schema": placed.schema, "argument_mode": "object"},
        "output": {"schema": result},
        "interface": {"safety": safety_of(mutation)},
        "execution": _execution(upstream, (url, *endpoint.failover), http, mutation),
        "permission": {"required_scopes": ["tools:call"], "approval": "by_policy"},
        "mutation_class": mutation.value,
        "observability": {"audit_detail": "summary"},
        "external_mappings": [{"openapi": _mapping(operation, native_name)}],
        **effects_of(upstream, native_name, mutation, repeatable=method in _REPEATABLE),
    }
    return MappedTool(Manifest(document), digest(operation), tuple(notes))


def _request_line(operation: dict[str, Any], problems: list[Violation]) -> tuple[str, str]:
    """Return the method and the address."""
    method, server, path = (operation.get(key) for key in ("method", "server", "path"))
    if method not in _METHODS:
        problems.append(Violation("method", "openapi.method", f"is none of {', '.join(sorted(_METHODS))}"))
    url = f"{server}{path}"
    if not isinstance(path, str) or not path.startswith("/") or len(url) > _MAX_URL:
        problems.append(Violation("path", "openapi.path", f"makes no address of at most {_MAX_URL} characters"))
    return str(method), url


def _mutation_class(upstream: Upstream, native_name: str, method: str) -> MutationClass:
    """Return what the deployment says, else what the method means (RFC 9110)."""
    overlay = upstream.overlay_of(native_name)
    if overlay is not None:
        return overlay.mutation_class
    return MutationClass.READ_ONLY if method in _READING else MutationClass.WRITE_IRREVERSIBLE


def _description(operation: dict[str, Any], upstream: Upstream, native_name: str, notes: list[str]) -> str:
    texts = (operation.get("description"), operation.get("summary"))
    text = next((each for each in texts if isinstance(each, str) and each.strip()), "")
    return description_of(text, upstream, native_name, notes)


def _result_schema(operation: dict[str, Any], notes: list[str], problems: list[Violation]) -> dict[str, Any]:
    result = operation.get("result")
    described = result if isinstance(result, dict) else {}
    if described.get("media_types"):
        kinds = ", ".join(str(each) for each in described["media_types"])
        message = f"is {kinds}; the mesh passes on JSON and text, and no files"
        problems.append(Violation("result", "openapi.result", message))
    if not isinstance(described.get("schema"), dict):
        why = "its schema is too large" if described.get("size") else "the document does not describe it"
        notes.append(f"the result is not checked: {why}")
        return _OPEN_RESULT
    return {"$schema": DIALECT, **described["schema"]}


def _execution(
    upstream: Upstream, urls: Sequence[str], http: dict[str, Any], mutation: MutationClass
) -> dict[str, Any]:
    execution: dict[str, Any] = {
        "runner": "http",
        "http": http,
        "timeout_class": "long_running",
        "timeout_default": "60s",
        "external_service": upstream.upstream_id,
        "access_tier": "network",
        "network_policy": _network(urls),
    }
    # Writes are sent once: a caller that repeats one does so under its key.
    return execution | ({"retry_policy": {"max_attempts": 3}} if mutation is MutationClass.READ_ONLY else {})


def _network(urls: Sequence[str]) -> dict[str, Any]:
    try:
        parts = [urlsplit(url) for url in urls]
        hosts = dict.fromkeys(each.hostname or "" for each in parts)
        ports = dict.fromkeys(each.port or _PORTS.get(each.scheme, 443) for each in parts)
        explicit = any(each.port for each in parts)
    except ValueError:
        message = "is not an address that a request can go to"
        raise UnusableDefinitionError(Violation("server", "openapi.server", message)) from None
    return {"allowed_domains": [*hosts], **({"allowed_ports": [*ports]} if explicit else {})}


def _mapping(operation: dict[str, Any], native_name: str) -> dict[str, Any]:
    texts = {"method": "method", "path": "path", "server": "server_url"}
    return {"operation_id": native_name} | {name: str(operation.get(key, "")) for key, name in texts.items()}
