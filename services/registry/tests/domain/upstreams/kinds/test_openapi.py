"""What a manifest says about an operation of an OpenAPI document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.rpc.validation.violations import violations_of
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import message_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.upstreams.definition import MappedTool, UnusableDefinitionError
from services.registry.domain.upstreams.map_definition import map_definition
from services.registry.domain.upstreams.upstream import OpenApiEndpoint, Overlay, Upstream

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINT = OpenApiEndpoint(url="https://api.example/o.json", secrets=(("key", "secret://crm"), ("oauth", "secret://t")))
KEY = {"id": "key", "type": "apiKey", "in": "header", "name": "X-Key"}
ARRAY = {"type": "array", "items": {"type": "string"}}


def mapped(overlay: Overlay | None = None, endpoint: OpenApiEndpoint = ENDPOINT, **fields: Any) -> MappedTool:
    upstream = Upstream("crm", endpoint, "operator", NOW, NOW, (overlay,) if overlay else ())
    operation = {"method": "get", "path": "/orders", "server": "https://api.example:8443/v1", "summary": "Orders"}
    definition = {**operation, "parameters": [], "security": [], "result": {"open": True}, **fields}
    return map_definition(upstream, "orders/list", json.dumps(definition).encode())


def admitted(**fields: Any) -> MappedTool:
    tool = mapped(**fields)
    assert violations_of(message_of(tool.manifest)) == []
    assert violations(tool.manifest, JsonSchemaChecker(), imported=True) == []
    return tool


def http(**fields: Any) -> dict[str, Any]:
    return admitted(**fields).manifest.execution["http"]  # type: ignore[no-any-return]


def parameter(name: str, place: str = "query", types: Any = ("string",), **fields: Any) -> dict[str, Any]:
    schema = ARRAY if "array" in types else {"type": types[0]}
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "types": [*types], **fields}


@pytest.mark.parametrize(
    ("method", "mutation", "mode"),
    [
        ("get", MutationClass.READ_ONLY, "natural"),
        ("head", MutationClass.READ_ONLY, "natural"),
        ("put", MutationClass.WRITE_IRREVERSIBLE, "natural"),
        ("delete", MutationClass.WRITE_IRREVERSIBLE, "natural"),
        ("post", MutationClass.WRITE_IRREVERSIBLE, "key_required"),
        ("patch", MutationClass.WRITE_IRREVERSIBLE, "key_required"),
    ],
)
def test_the_method_decides_what_an_operation_does(method: str, mutation: MutationClass, mode: str) -> None:
    manifest = admitted(method=method).manifest
    assert (manifest.mutation_class, manifest.part("idempotency")["mode"]) == (mutation, mode)
    # Only what reads is retried.
    assert ("retry_policy" in manifest.execution) == (mutation is MutationClass.READ_ONLY)


def test_the_deployment_knows_better() -> None:
    search = Overlay("orders/list", MutationClass.READ_ONLY)
    assert admitted(method="post", overlay=search).manifest.mutation_class is MutationClass.READ_ONLY


def test_other_origins_are_within_the_network_policy() -> None:
    endpoint = replace(ENDPOINT, failover=("https://eu.example", "https://us.example:9443"))
    execution = admitted(endpoint=endpoint).manifest.execution
    assert execution["http"]["failover_origins"] == ["https://eu.example", "https://us.example:9443"]
    policy = {"allowed_domains": ["api.example", "eu.example", "us.example"], "allowed_ports": [8443, 443, 9443]}
    assert execution["network_policy"] == policy


def test_the_manifest_names_the_operation_and_its_server() -> None:
    tool = admitted()
    assert tool.manifest.document["tool_id"] == "orders_list"
    assert tool.manifest.document["external_mappings"][0]["openapi"]["operation_id"] == "orders/list"
    assert tool.manifest.execution["network_policy"] == {"allowed_domains": ["api.example"], "allowed_ports": [8443]}
    assert tool.manifest.execution["http"]["url"] == "https://api.example:8443/v1/orders"


@pytest.mark.parametrize(
    ("style", "explode", "written"),
    [
        (None, None, "repeated"),
        ("form", False, "comma"),
        ("spaceDelimited", False, "space"),
        ("pipeDelimited", None, "pipe"),
        ("pipeDelimited", True, "repeated"),
    ],
)
def test_arrays_are_written_as_the_document_says(style: Any, explode: Any, written: str) -> None:
    given = {key: value for key, value in (("style", style), ("explode", explode)) if value is not None}
    [placed] = http(parameters=[parameter("tag", types=("array",), **given)])["parameters"]
    assert placed == {"argument": "tag", "place": "query", "name": "tag", "array_style": written}


def test_names_that_two_places_share_are_told_apart() -> None:
    both = [parameter("id"), parameter("id", "path"), parameter("X-Id", "header", ("array",))]
    endpoint = http(path="/orders/{id}", parameters=both)
    assert endpoint["parameters"] == [
        {"argument": "id_query", "place": "query", "name": "id"},
        {"argument": "X-Id", "place": "header", "name": "X-Id", "array_style": "comma"},
    ]


def test_the_body_is_one_argument() -> None:
    body = {"required": True, "schema": {"$ref": "#/$defs/Order"}}
    definitions = {"Order": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Order"}}}}
    tool = admitted(method="post", body=body, **{"$defs": definitions})
    assert tool.manifest.execution["http"]["body_argument"] == "body"
    assert tool.manifest.input["schema"]["required"] == ["body"]
    taken = http(method="post", body=body, parameters=[parameter("body")], **{"$defs": definitions})
    assert taken["body_argument"] == "request_body"


def test_an_idempotency_header_carries_the_key_of_the_call() -> None:
    endpoint = http(method="post", parameters=[parameter("Idempotency-Key", "header")])
    assert endpoint["idempotency_header"] == "Idempotency-Key"
    assert "parameters" not in endpoint


@pytest.mark.parametrize(
    "unusual",
    [
        parameter("session", "cookie"),
        parameter("filter", types=("object",)),
        parameter("deep", style="deepObject"),
        {"name": "json", "in": "query", "content": True, "required": False},
    ],
)
def test_a_parameter_without_a_form_is_left_out_unless_it_is_required(unusual: dict[str, Any]) -> None:
    tool = admitted(parameters=[unusual])
    assert tool.manifest.input["schema"]["properties"] == {}
    assert len(tool.notes) == 2
    with pytest.raises(UnusableDefinitionError):
        mapped(parameters=[{**unusual, "required": True}])


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "post", "body": {"required": True, "media_types": ["multipart/form-data"]}},
        {"method": "put", "body": {"required": False, "media_types": ["application/octet-stream"]}},
        {"result": {"media_types": ["application/zip"]}},
        {"path": "/orders/{id}", "parameters": [parameter("id", "path", ("array",))]},
        {"server": "https://[::1"},
        {"security": [[{"id": "other", "type": "http", "scheme": "bearer"}]]},
        {"security": [[{"id": "key", "type": "mutualTLS"}]]},
        {"security": [[{**KEY, "in": "query", "name": "a=b&c"}]]},
        {"method": "trace"},
        {"path": 7},
        {"path": "orders"},
        {"path": "/" + "x" * 2048},
        {"parameters": [parameter("", required=True)]},
        {"parameters": [parameter("x" * 129, required=True)]},
    ],
)
def test_what_a_call_could_not_do_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UnusableDefinitionError):
        mapped(**fields)


@pytest.mark.parametrize("fields", [{"server": "ftp://a"}, {"path": "/orders/{id}"}, {"path": "/a/../b"}])
def test_what_is_no_request_is_refused_by_the_rules_of_manifests(fields: dict[str, Any]) -> None:
    assert violations(mapped(**fields).manifest, JsonSchemaChecker(), imported=True)


@pytest.mark.parametrize(
    ("scheme", "placed"),
    [
        (KEY, {"place": "header", "name": "X-Key"}),
        ({**KEY, "in": "query"}, {"place": "query", "name": "X-Key"}),
        ({"id": "key", "type": "http", "scheme": "Bearer"}, {"place": "header", "prefix": "Bearer "}),
        ({"id": "key", "type": "http", "scheme": "basic"}, {"place": "header", "prefix": "Basic "}),
        ({"id": "key", "type": "oauth2"}, {"place": "header", "name": "Authorization", "prefix": "Bearer "}),
    ],
)
def test_security_schemes_become_references_of_secrets(scheme: dict[str, Any], placed: dict[str, str]) -> None:
    [use] = http(security=[[scheme]])["secrets"]
    assert use["secret"] == "secret://crm"
    assert placed.items() <= use.items()


def test_the_first_alternative_with_its_secrets_is_used() -> None:
    missing = {"id": "other", "type": "http", "scheme": "bearer"}
    oauth = {"id": "oauth", "type": "oauth2"}
    assert len(http(security=[[missing], [KEY, oauth]])["secrets"]) == 2
    assert "secrets" not in http(security=[[missing], []])


def test_the_result_is_checked_where_the_document_describes_it() -> None:
    closed = admitted(result={"schema": {"type": "integer"}})
    assert closed.manifest.output["schema"]["type"] == "integer"
    assert not closed.notes
    assert admitted().notes
