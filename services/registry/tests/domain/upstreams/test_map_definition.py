"""What a manifest says about the tool of an MCP server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.json.schema_guard import DIALECT
from libs.common.rpc.validation.violations import violations_of
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import message_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.upstreams.definition import (
    MAX_DEFINITION_BYTES,
    MappedTool,
    UnusableDefinitionError,
    tool_id,
)
from services.registry.domain.upstreams.map_definition import map_definition
from services.registry.domain.upstreams.upstream import (
    GrpcEndpoint,
    HttpEndpoint,
    OpenApiEndpoint,
    Overlay,
    StdioEndpoint,
    Upstream,
    WebSocketEndpoint,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFINED = StdioEndpoint(("/usr/bin/server",), allowed_hosts=("example.com",))
REMOTE = HttpEndpoint("https://mcp.example:8443/mcp")


def mapped(endpoint: Any = CONFINED, overlay: Overlay | None = None, **definition: Any) -> MappedTool:
    upstream = Upstream("acme", endpoint, "operator", NOW, NOW, (overlay,) if overlay else ())
    document = {"name": "list", "inputSchema": {"type": "object"}, **definition}
    return map_definition(upstream, "list", json.dumps(document).encode())


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        ("get_current_time", "get_current_time"),
        ("getCurrentTime", "get_current_time"),
        ("HTTPGet", "http_get"),
        ("repo/list-issues.v2", "repo_list_issues_v2"),
        ("ls", "tool_ls"),
        ("2fa", "tool_2fa"),
        ("Zeit für Tee", "zeit_f_r_tee"),
        ("日本", "tool"),
    ],
)
def test_a_native_name_becomes_an_id(native: str, expected: str) -> None:
    assert tool_id(native) == expected


@pytest.mark.parametrize("endpoint", [CONFINED, REMOTE, HttpEndpoint("http://[::1]:9/mcp")])
@pytest.mark.parametrize(
    "annotations", [None, {"readOnlyHint": True}, {"idempotentHint": True}, {"readOnlyHint": 1}, 7]
)
@pytest.mark.parametrize("description", [None, "", "Hi", "Lists all of them.", "long " * 1000])
def test_every_manifest_can_be_registered(endpoint: Any, annotations: Any, description: Any) -> None:
    manifest = mapped(endpoint, annotations=annotations, description=description).manifest
    assert violations_of(message_of(manifest)) == []
    assert violations(manifest, JsonSchemaChecker(), imported=True) == []


def test_what_is_not_said_is_the_worst() -> None:
    assert mapped().manifest.mutation_class is MutationClass.WRITE_IRREVERSIBLE
    assert mapped(annotations={"destructiveHint": False}).manifest.mutation_class is MutationClass.WRITE_IRREVERSIBLE
    assert mapped(annotations={"readOnlyHint": True}).manifest.mutation_class is MutationClass.READ_ONLY
    overlay = Overlay("list", MutationClass.WRITE_REVERSIBLE, "tools/acme.unlist")
    manifest = mapped(overlay=overlay, annotations={"readOnlyHint": True}).manifest
    assert manifest.mutation_class is MutationClass.WRITE_REVERSIBLE
    assert violations(manifest, JsonSchemaChecker(), imported=True) == []


def test_objects_inside_of_arguments_are_closed_where_they_list_names() -> None:
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    free = {"type": "object"}
    tool = mapped(inputSchema={"type": "object", "properties": {"to": address, "labels": free}})
    properties = tool.manifest.input["schema"]["properties"]
    assert properties["to"] == {**address, "additionalProperties": False}
    assert properties["labels"] == {**free, "additionalProperties": True}
    assert len(tool.notes) == 1
    assert violations(tool.manifest, JsonSchemaChecker(), imported=True) == []
    said = {"type": "object", "properties": {"to": {**address, "additionalProperties": {"type": "string"}}}}
    assert mapped(inputSchema=said).manifest.input["schema"]["properties"] == said["properties"]
    broken = {"type": "object", "properties": {"to": address, "bad": {"$ref": "https://example.com/other"}}}
    assert mapped(inputSchema=broken).manifest.input["schema"]["properties"] == broken["properties"]


def test_an_open_schema_is_closed_and_an_old_dialect_read_as_the_new_one() -> None:
    old = "http://json-schema.org/draft-07/schema#"
    strict = mapped(inputSchema={"$schema": old, "type": "object", "additionalProperties": True})
    assert strict.manifest.input["schema"] == {"$schema": DIALECT, "type": "object"}
    assert len(strict.notes) == 2
    # Its meaning would change, so it stays as it is, and admission refuses it.
    changed = {"$schema": old, "type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}
    kept = mapped(inputSchema=changed)
    assert kept.manifest.input["schema"] == changed
    assert violations(kept.manifest, JsonSchemaChecker(), imported=True)


def test_the_digest_ignores_formatting_and_nothing_else() -> None:
    assert mapped(title="A b").digest == mapped(title="A b").digest
    assert mapped(title="A b").digest != mapped(title="A c").digest
    assert mapped(_meta={"a": 1}).digest != mapped(_meta={"a": 2}).digest


@pytest.mark.parametrize("definition", [b"[]", b"{", b'{"a": NaN}', b'{"a":"' + b"x" * MAX_DEFINITION_BYTES + b'"}'])
def test_a_definition_that_cannot_be_read_is_refused(definition: bytes) -> None:
    with pytest.raises(UnusableDefinitionError):
        map_definition(Upstream("acme", CONFINED, "operator", NOW, NOW), "list", definition)


@pytest.mark.parametrize(
    ("endpoint", "definition"),
    [
        (CONFINED, {"inputSchema": {"type": "object"}}),
        (REMOTE, {"inputSchema": {"type": "object"}}),
        (OpenApiEndpoint(), {"method": "get", "path": "/a", "server": "https://api.example", "parameters": []}),
        (GrpcEndpoint("shop:443"), {"input": {"type": "object"}, "output": {"type": "object"}}),
        (WebSocketEndpoint("wss://feed.example/v1", ()), {"input": {"type": "object"}}),
    ],
    ids=["confined", "remote", "openapi", "grpc", "websocket"],
)
def test_every_kind_of_tool_says_which_calls_are_slow(endpoint: Any, definition: dict[str, Any]) -> None:
    manifests = []
    for slow_call_time in ("", "0.800s"):
        upstream = Upstream("acme", endpoint, "operator", NOW, NOW, slow_call_time=slow_call_time)
        manifest = map_definition(upstream, "acme.Shop/List", json.dumps(definition).encode()).manifest
        assert violations_of(message_of(manifest)) == []
        assert violations(manifest, JsonSchemaChecker(), imported=True) == []
        manifests.append(manifest)
    without, with_time = (each.document for each in manifests)
    execution = {**without["execution"], "circuit_breaker": {"slow_call_time": "0.800s"}}
    assert with_time == {**without, "execution": execution}
