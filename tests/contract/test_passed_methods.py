"""What executors pass on of MCP servers beside tools, the registry publishes, and the gateway finds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from libs.common.rpc.validation.violations import violations_of
from services.executor.adapters.upstreams.mcp.passed_methods import METHODS, passed_methods
from services.gateway.mcp.upstreams.passed_methods import tool_of
from services.gateway.mcp.views import View
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import message_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.upstreams.definition import tool_id
from services.registry.domain.upstreams.kinds.mcp import PASSED_METHODS
from services.registry.domain.upstreams.map_definition import map_definition
from services.registry.domain.upstreams.upstream import StdioEndpoint, Upstream

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UPSTREAM = Upstream("acme", StdioEndpoint(("/usr/bin/server",)), "operator", NOW, NOW, ())


def mapping_of(definition: dict[str, Any]) -> Any:
    manifest = map_definition(UPSTREAM, definition["name"], json.dumps(definition).encode()).manifest
    assert violations_of(message_of(manifest)) == []
    assert violations(manifest, JsonSchemaChecker(), imported=True) == []
    return message_of(manifest).external_mappings[0].mcp


def test_each_passed_method_is_published_under_the_name_that_the_gateway_calls() -> None:
    capabilities: dict[str, Any] = {"prompts": {}, "resources": {"subscribe": True}, "completions": {}}
    assert METHODS == PASSED_METHODS
    definitions = passed_methods(capabilities)
    assert {each["name"] for each in definitions} == METHODS
    for definition in definitions:
        mapping = mapping_of(definition)
        assert (mapping.method, mapping.content_result) == (definition["name"], False)
        assert tool_of(View(namespace="acme"), definition["name"]).tool_id == tool_id(definition["name"])


def test_the_result_of_a_tool_without_an_output_schema_is_content() -> None:
    mapping = mapping_of({"name": "say", "inputSchema": {"type": "object"}})
    assert (mapping.method, mapping.content_result) == ("", True)
