"""The tools of the gateway itself: find, describe and call what a listing had no room for.

Their names have a hyphen and no underscore, so no tool of the registry has the same name in any view.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.json_pointer import pointer_of
from services.gateway.mcp.tools.tool_definition import estimated_tokens

SEARCH, DESCRIBE, CALL = "search-tools", "describe-tools", "call-tool"
_READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_TOOL_NAME = {"type": "string", "minLength": 1, "maxLength": 320}

META_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": SEARCH,
        "title": "Search tools",
        "description": "Finds tools that are not in this list, by name, keywords or a sentence about the task.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 2000},
                "max_results": {"type": "integer", "minimum": 1, "maximum": 20},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": _READ_ONLY,
    },
    {
        "name": DESCRIBE,
        "title": "Describe tools",
        "description": "Returns the description, the schemas and the digest of tools that search-tools found.",
        "inputSchema": {
            "type": "object",
            "properties": {"names": {"type": "array", "items": _TOOL_NAME, "minItems": 1, "maxItems": 10}},
            "required": ["names"],
            "additionalProperties": False,
        },
        "annotations": _READ_ONLY,
    },
    {
        "name": CALL,
        "title": "Call a tool",
        "description": "Calls a tool that is not in this list. Describe it first; a deferred tool needs its digest.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": _TOOL_NAME,
                "arguments": {"type": "object"},
                "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        # What it does depends on the tool: the worst is said.
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": False,
            "openWorldHint": True,
        },
    },
)
META_TOOLS_TOKENS = sum(map(estimated_tokens, META_TOOLS))
NAMES = frozenset(tool["name"] for tool in META_TOOLS)
_VALIDATORS = {
    tool["name"]: jsonschema_rs.Draft202012Validator(tool["inputSchema"], mask="the value", offline=True)
    for tool in META_TOOLS
}


def check_arguments(name: str, arguments: dict[str, Any]) -> None:
    """Raise ARGUMENTS_INVALID with every violation, unless the arguments match the schema of a meta-tool."""
    validator = _VALIDATORS[name]
    if validator.is_valid(arguments):
        return
    violations = [
        Violation(pointer_of(error.instance_path), str(error.schema_path[-1]), error.message[:200])
        for error in validator.iter_errors(arguments)
    ]
    raise MeshError(Reason.ARGUMENTS_INVALID, violations=violations[:20])
