"""The methods by which a client and the gateway meet: `initialize`, `ping` and `server/discover`."""

from __future__ import annotations

from typing import Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY

from services.gateway.mcp.context import ClientFacts, McpContext, Result
from services.gateway.mcp.invocations.reports import LEVELS
from services.gateway.mcp.invocations.task_view import TASKS_EXTENSION
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.protocol import SERVER_INFO, SESSION_VERSIONS, STATELESS_VERSIONS, TASKS_VERSION
from services.gateway.mcp.upstreams.passed_methods import passes
from services.gateway.mcp.upstreams.subscribe import SUBSCRIBE
from services.gateway.mcp.views import View

# Only what is built is advertised.
_CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {}, "logging": {}}
_OF_UPSTREAMS = {"prompts": "prompts/get", "completions": "completion/complete"}
_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
# What a server does until a client of a session chooses.
_FIRST_LEVEL = "info"
_INSTRUCTIONS = (
    "Tools of a governed mesh: each call is checked against its schema and policy, and recorded. A refused call says "
    "why and what to do. Where more tools exist than are listed, search-tools finds them."
)


class Lifecycle:
    """Describes the view that a client connects to."""

    def __init__(self, facts: ToolFacts) -> None:
        self._facts = facts

    async def initialize(self, params: dict[str, Any], context: McpContext) -> Result:
        """Answer with the client's revision if it is served, else with the newest that has sessions."""
        asked = params["protocolVersion"]
        version = asked if asked in SESSION_VERSIONS else SESSION_VERSIONS[-1]
        capabilities = self._capabilities(context.view)
        return {
            "protocolVersion": version,
            "capabilities": {**capabilities, "tasks": _TASKS} if version == TASKS_VERSION else capabilities,
            "serverInfo": _info(context.view),
            "instructions": _instructions(context.view),
        }

    async def discover(self, params: dict[str, Any], context: McpContext) -> Result:
        """Describe the server to a client that keeps no session."""
        return {
            "supportedVersions": list(STATELESS_VERSIONS),
            "capabilities": {**self._capabilities(context.view), "extensions": {TASKS_EXTENSION: {}}},
            "instructions": _instructions(context.view),
        }

    def _capabilities(self, view: View) -> dict[str, Any]:
        """Return what is served here: what every view has, and what the server behind this one has."""
        passed: dict[str, Any] = {
            name: {} for name, method in _OF_UPSTREAMS.items() if passes(self._facts, view, method)
        }
        resources = {"resources": {"subscribe": True}} if passes(self._facts, view, SUBSCRIBE) else {}
        return {**_CAPABILITIES, **resources, **passed}


async def ping(params: dict[str, Any], context: McpContext) -> Result:
    """Answer with nothing."""
    return {}


def session_client(params: dict[str, Any]) -> ClientFacts | None:
    """Return what a client says of itself in `initialize`; None if it says nothing usable, and gets an error."""
    capabilities = params.get("capabilities")
    if type(capabilities) is not dict:
        return None
    return ClientFacts(
        elicitation=_has_forms(capabilities),
        sampling=type(capabilities.get("sampling")) is dict,
        roots=type(capabilities.get("roots")) is dict,
        log_level=_FIRST_LEVEL,
    )


def stateless_client(params: dict[str, Any]) -> ClientFacts:
    """Return what a client says of itself with a stateless request."""
    meta = params["_meta"]
    capabilities, level = meta[CLIENT_CAPABILITIES_META_KEY], meta.get(LOG_LEVEL_META_KEY)
    if type(capabilities) is not dict:
        # The parameters are checked later, and refused.
        return ClientFacts()
    extensions = capabilities.get("extensions")
    return ClientFacts(
        elicitation=_has_forms(capabilities),
        sampling=type(capabilities.get("sampling")) is dict,
        roots=type(capabilities.get("roots")) is dict,
        tasks=type(extensions) is dict and TASKS_EXTENSION in extensions,
        log_level=level if level in LEVELS else "",
    )


def _has_forms(capabilities: dict[str, Any]) -> bool:
    """Return whether a client shows forms: it says so, or names no mode at all."""
    modes = capabilities.get("elicitation")
    return type(modes) is dict and ("form" in modes or "url" not in modes)


def _info(view: View) -> dict[str, str]:
    return {**SERVER_INFO, "title": view.title} if view.title else SERVER_INFO


def _instructions(view: View) -> str:
    return f"{view.instructions} {_INSTRUCTIONS}".strip()
