"""Says where tokens for `/mcp` come from: protected resource metadata (RFC 9728), and the challenge that names it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from services.gateway.mcp.views import Views

METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"
SCOPES = ("tools:read", "tools:call")


def view_name(path: str) -> str | None:
    """Return the view that a path below `/mcp` names; empty for `/mcp` itself, None for any other path."""
    if path in (MCP_PATH, MCP_PATH + "/"):
        return ""
    return path.removeprefix(MCP_PATH + "/") if path.startswith(MCP_PATH + "/") else None


def metadata(address: str, path: str, views: Views, authorization_servers: Collection[str]) -> dict[str, Any] | None:
    """Return the metadata of the resource that a path below METADATA_PATH names; None if there is no such one.

    Without a path it is that of `/mcp`.
    """
    resource = path.removeprefix(METADATA_PATH) or MCP_PATH
    name = view_name(resource)
    if name is None or (name and name not in views):
        return None
    document: dict[str, Any] = {
        "resource": address + resource.rstrip("/"),
        "resource_name": "Toolmesh",
        "bearer_methods_supported": ["header"],
        "scopes_supported": list(SCOPES),
        "dpop_signing_alg_values_supported": ["ES256", "EdDSA", "RS256"],
    }
    if authorization_servers:
        document["authorization_servers"] = list(authorization_servers)
    return document


def challenge(address: str, path: str, *, invalid: bool) -> bytes:
    """Return the `www-authenticate` value of a 401: it names the metadata, and says if a token was sent."""
    error = 'error="invalid_token", ' if invalid else ""
    return f'Bearer {error}resource_metadata="{address}{METADATA_PATH}{path}"'.encode()
