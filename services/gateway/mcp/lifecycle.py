"""The methods by which a client and the gateway meet: `initialize`, `ping` and `server/discover`."""

from __future__ import annotations

from typing import Any

from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.protocol import SERVER_INFO, SESSION_VERSIONS, STATELESS_VERSIONS
from services.gateway.mcp.views import View

# Only what is built is advertised.
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {}}
_INSTRUCTIONS = (
    "Tools of a governed mesh: each call is checked against its schema and policy, and recorded. A refused call says "
    "why and what to do. Where more tools exist than are listed, search-tools finds them."
)


async def initialize(params: dict[str, Any], context: McpContext) -> Result:
    """Answer with the client's revision if it is served, else with the newest that has sessions."""
    asked = params["protocolVersion"]
    return {
        "protocolVersion": asked if asked in SESSION_VERSIONS else SESSION_VERSIONS[-1],
        "capabilities": CAPABILITIES,
        "serverInfo": _info(context.view),
        "instructions": _instructions(context.view),
    }


async def ping(params: dict[str, Any], context: McpContext) -> Result:
    """Answer with nothing."""
    return {}


async def discover(params: dict[str, Any], context: McpContext) -> Result:
    """Describe the server to a client that keeps no session."""
    return {
        "supportedVersions": list(STATELESS_VERSIONS),
        "capabilities": CAPABILITIES,
        "instructions": _instructions(context.view),
    }


def _info(view: View) -> dict[str, str]:
    return {**SERVER_INFO, "title": view.title} if view.title else SERVER_INFO


def _instructions(view: View) -> str:
    return f"{view.instructions} {_INSTRUCTIONS}".strip()
