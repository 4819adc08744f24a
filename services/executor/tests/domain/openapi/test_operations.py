"""The operations of an OpenAPI document, each with everything that its calls need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.executor.domain.openapi import operations, schema_bundle
from services.executor.domain.openapi.operations import DocumentProblemError, Operation, Selection, describe_api

SERVER = [{"url": "https://api.example.com/v1/"}]


def document(operation: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    described = {"operationId": "get", **(operation or {})}
    return {"openapi": "3.0.3", "servers": SERVER, "paths": {"/a/{b}": {"get": described}}, **parts}


def described(operation: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    [only] = describe_api(document(operation, **parts), Selection()).operations
    assert not only.problem
    return json.loads(only.definition)  # type: ignore[no-any-return]


def problem(operation: dict[str, Any] | None = None, **parts: Any) -> Operation:
    [only] = describe_api(document(operation, **parts), Selection()).operations
    assert only.problem
    assert not only.definition
    return only


def body(schema: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


@pytest.mark.parametrize("value", [[], {}, {"swagger": "2.0", "paths": {}}, {"openapi": "4.0.0"}, {"openapi": "3.1.0"}])
def test_what_is_no_document_with_operations_is_refused(value: Any) -> None:
    with pytest.raises(DocumentProblemError):
        describe_api(value, Selection())


def test_native_ids_are_kept_and_others_made_of_method_and_path() -> None:
    paths = {"/a": {"get": {"operationId": "same"}, "post": {}}, "/b": {"get": {"operationId": "same"}}}
    api = describe_api({**document(), "paths": paths}, Selection())
    assert [each.native_name for each in api.operations] == ["same", "POST /a", "GET /b"]


def test_operations_are_selected_by_id_or_tag() -> None:
    paths = {f"/{name}": {"get": {"operationId": name, "tags": [name[0]]}} for name in ("a/x", "a/y", "b/x")}
    chosen = Selection(operations=("b", "a/y"))
    api = describe_api({**document(), "paths": paths}, chosen)
    assert [each.native_name for each in api.operations] == ["a/y", "b/x"]
    with pytest.raises(DocumentProblemError):
        describe_api({**document(), "paths": paths}, Selection(operations=("c",)))


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_OPERATIONS", 2)
    paths: dict[str, Any] = {f"/{number}": {"get": {}} for number in range(3)}
    with pytest.raises(DocumentProblemError):
        describe_api({**document(), "paths": paths}, Selection())


@pytest.mark.parametrize(
    ("servers", "selection", "expected"),
    [
        (SERVER, Selection(), "https://api.example.com/v1"),
        (SERVER, Selection(server="http://other"), "http://other"),
        ([{"url": "/v2"}], Selection(document_url="https://api.example.com/docs/o.json"), "https://api.example.com/v2"),
        (
            [{"url": "https://{region}.example.com", "variables": {"region": {"default": "eu"}}}],
            Selection(),
            "https://eu.example.com",
        ),
    ],
)
def test_the_server_is_absolute(servers: Any, selection: Selection, expected: str) -> None:
    [only] = describe_api(document(servers=servers), selection).operations
    assert json.loads(only.definition)["server"] == expected


def test_an_operation_without_an_absolute_server_is_a_problem() -> None:
    problem(servers=[{"url": "/v1"}])


def test_parameters_of_the_path_item_are_replaced_by_those_of_the_operation() -> None:
    shared = [{"name": "b", "in": "path", "schema": {"type": "string"}}, {"$ref": "#/components/parameters/Page"}]
    own = [{"name": "b", "in": "path", "schema": {"type": "integer"}, "required": True}]
    page = {"name": "page", "in": "query", "schema": {"$ref": "#/components/schemas/Page"}}
    parts = {"parameters": {"Page": page}, "schemas": {"Page": {"type": "array", "items": {"type": "string"}}}}
    item = {"parameters": shared, "get": {"operationId": "get", "parameters": own}}
    [only] = describe_api(document(components=parts, paths={"/a/{b}": item}), Selection()).operations
    found = {each["name"]: each for each in json.loads(only.definition)["parameters"]}
    assert found["b"]["schema"] == {"type": "integer"}
    assert found["page"]["types"] == ["array"]


def test_schemas_are_copied_with_what_they_refer_to_and_recursion_stays() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}, "x-internal": 1}
    parts = {"schemas": {"Node": node, "Unused": {"type": "string"}}}
    found = described(body({"$ref": "#/components/schemas/Node"}), components=parts)
    assert found["body"]["schema"] == {"$ref": "#/$defs/Node"}
    assert found["$defs"] == {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}


def test_openapi_3_0_becomes_json_schema_2020_12() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "nullable": True, "enum": ["x"]},
            "b": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "example": 7},
            "c": {"nullable": True, "allOf": [{"type": "object"}]},
        },
    }
    assert described(body(schema))["body"]["schema"]["properties"] == {
        "a": {"type": ["string", "null"], "enum": ["x", None]},
        "b": {"type": "integer", "exclusiveMinimum": 0},
        "c": {"anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]},
    }


def test_a_request_leaves_out_what_the_service_sets() -> None:
    fields = {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["id", "name"]}
    kept = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert described(body(schema))["body"]["schema"] == kept


@pytest.mark.parametrize(
    "reference", ["https://evil.example/schema.json", "other.json#/a", "#/components/schemas/None", "#/paths/0/0"]
)
def test_a_reference_out_of_the_document_is_never_followed(reference: str) -> None:
    problem(body({"$ref": reference}))


def test_endless_references_end() -> None:
    parts = {"parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}}
    problem({"parameters": [{"$ref": "#/components/parameters/A"}]}, components=parts)


def test_deep_and_large_schemas_are_a_problem_of_their_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(schema_bundle.MAX_DEPTH + 2):
        deep = {"type": "array", "items": deep}
    problem(body(deep))
    problem(body({"type": "string", "description": "x" * operations.MAX_DEFINITION_BYTES}))
    monkeypatch.setattr(schema_bundle, "MAX_SCHEMAS", 3)
    problem(body({"type": "object", "properties": {str(number): {} for number in range(4)}}))


def result(**responses: Any) -> Any:
    return described({"responses": {status.lstrip("_"): response for status, response in responses.items()}})["result"]


def content(media_type: str, schema: Any = None) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema or {}}}}


def test_results_are_described_where_they_can_be() -> None:
    assert result(_200=content("application/json", {"type": "string", "format": "uri"})) == {
        "schema": {"type": "string"}
    }
    assert result(_204={"description": "done"}) == {"schema": {"type": "null"}}
    assert result(_200=content("text/plain")) == {"schema": {"type": "string"}}
    assert result(_200=content("application/zip")) == {"media_types": ["application/zip"]}
    assert result(default=content("application/json")) == {"open": True}
    both = result(_200=content("application/json", {"type": "integer"}), _204={}, _500=content("application/json"))
    assert both == {"schema": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    large = {"type": "object", "properties": {f"property{number}": {"type": "string"} for number in range(1000)}}
    assert result(_200=content("application/json", large)) == {"open": True, "size": True}


def test_other_bodies_are_named() -> None:
    upload = {"requestBody": {"required": True, "content": {"multipart/form-data": {}}}}
    assert described(upload)["body"] == {"required": True, "media_types": ["multipart/form-data"]}


def test_security_schemes_are_those_of_the_operation_or_the_document() -> None:
    schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "long"}}
    parts: dict[str, Any] = {"components": {"securitySchemes": schemes}, "security": [{"key": []}]}
    key = {"id": "key", "type": "apiKey", "in": "header", "name": "X-Key"}
    assert described(**parts)["security"] == [[key]]
    assert described({"security": [{}, {"key": [], "other": []}]}, **parts)["security"] == [[], [key, {"id": "other"}]]
    assert described({"security": []}, **parts)["security"] == []
