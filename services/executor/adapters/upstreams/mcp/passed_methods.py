"""Methods of MCP servers beside `tools/call` that the mesh passes on, each as a tool of its upstream.

As tools they are authorized, limited and recorded like any other. Their names have a slash, which tools of servers
have not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CURSOR = {"cursor": {"type": "string", "description": "Where to continue: `nextCursor` of the page before."}}
_TEXT = {"type": "string"}
_ARGUMENTS = {"type": "object", "additionalProperties": _TEXT}


def _listing(member: str) -> dict[str, Any]:
    properties = {member: {"type": "array", "items": {"type": "object"}}, "nextCursor": _TEXT}
    return {"type": "object", "properties": properties, "required": [member]}


def _definition(
    name: str, title: str, description: str, properties: dict[str, Any], required: list[str], output: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        "outputSchema": output,
        "annotations": {"readOnlyHint": True},
    }


_PROMPTS = (
    _definition("prompts/list", "List prompts", "Lists the prompts of the server.", _CURSOR, [], _listing("prompts")),
    _definition(
        "prompts/get",
        "Get a prompt",
        "Returns a prompt of the server with its arguments filled in.",
        {"name": _TEXT, "arguments": _ARGUMENTS},
        ["name"],
        {
            "type": "object",
            "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
            "required": ["messages"],
        },
    ),
)
_RESOURCES = (
    _definition(
        "resources/list", "List resources", "Lists the resources of the server.", _CURSOR, [], _listing("resources")
    ),
    _definition(
        "resources/templates/list",
        "List resource templates",
        "Lists the forms of addresses under which the server has resources.",
        _CURSOR,
        [],
        _listing("resourceTemplates"),
    ),
    _definition(
        "resources/read",
        "Read a resource",
        "Returns the content of a resource of the server.",
        {"uri": _TEXT},
        ["uri"],
        {
            "type": "object",
            "properties": {"contents": {"type": "array", "items": {"type": "object"}}},
            "required": ["contents"],
        },
    ),
)
SUBSCRIBE = "resources/subscribe"
_SUBSCRIPTION = (
    _definition(
        SUBSCRIBE,
        "Subscribe to a resource",
        "Says whether the server reports changes of a resource. WatchResources calls it, and then reports them.",
        {"uri": _TEXT},
        ["uri"],
        {"type": "object"},
    ),
)
_COMPLETION = (
    _definition(
        "completion/complete",
        "Complete an argument",
        "Completes an argument of a prompt or of a resource template of the server.",
        {
            "ref": {
                "type": "object",
                "properties": {"type": _TEXT, "name": _TEXT, "title": _TEXT, "uri": _TEXT},
                "required": ["type"],
                "additionalProperties": False,
            },
            "argument": {
                "type": "object",
                "properties": {"name": _TEXT, "value": _TEXT},
                "required": ["name", "value"],
                "additionalProperties": False,
            },
            "context": {"type": "object", "properties": {"arguments": _ARGUMENTS}, "additionalProperties": False},
        },
        ["ref", "argument"],
        {"type": "object", "properties": {"completion": {"type": "object"}}, "required": ["completion"]},
    ),
)
_OFFERED_WITH = {"prompts": _PROMPTS, "resources": _RESOURCES, "completions": _COMPLETION}
METHODS = frozenset(each["name"] for offered in (*_OFFERED_WITH.values(), _SUBSCRIPTION) for each in offered)


def passed_methods(capabilities: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the definitions of the methods that a server with these capabilities has."""
    offered = [
        each
        for name, definitions in _OFFERED_WITH.items()
        if isinstance(capabilities.get(name), dict)
        for each in definitions
    ]
    resources = capabilities.get("resources")
    subscribable = isinstance(resources, dict) and resources.get("subscribe") is True
    return [*offered, *_SUBSCRIPTION] if subscribable else offered
