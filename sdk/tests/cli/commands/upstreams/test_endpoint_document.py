"""The document of one endpoint: where its arguments travel."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh_sdk.cli.commands.upstreams.endpoint_document import EndpointOptions, endpoint_document

ORDERS = "https://api.example.com/v1/orders/{order_id}"
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "integer"}, "tag": {"type": "string"}, "lines": {"$ref": "#/$defs/Lines"}},
    "required": ["order_id", "lines"],
    "additionalProperties": False,
    "$defs": {"Lines": {"type": "array"}},
}


def operation_of(options: EndpointOptions) -> dict[str, Any]:
    [item] = endpoint_document(options)["paths"].values()
    [operation] = item.values()
    return dict(operation)


def places(operation: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {each["name"]: (each["in"], each["required"]) for each in operation["parameters"]}


def test_without_a_schema_the_arguments_are_texts_of_the_path_the_query_and_headers() -> None:
    options = EndpointOptions(ORDERS, query=("tag",), headers=("X-Lang",))
    operation = operation_of(options)
    assert places(operation) == {"order_id": ("path", True), "tag": ("query", False), "X-Lang": ("header", False)}
    assert {each["schema"]["type"] for each in operation["parameters"]} == {"string"}
    assert (options.native_name, options.origin) == ("get_orders", "https://api.example.com")
    assert [*endpoint_document(options)["paths"]] == ["/v1/orders/{order_id}"]


@pytest.mark.parametrize("method", ["get", "delete"])
def test_arguments_of_a_request_without_a_body_travel_in_the_query(method: str) -> None:
    operation = operation_of(EndpointOptions(ORDERS, method=method, arguments=SCHEMA))
    assert places(operation) == {"order_id": ("path", True), "tag": ("query", False), "lines": ("query", True)}
    assert "requestBody" not in operation


def test_arguments_of_a_request_with_a_body_are_its_members() -> None:
    options = EndpointOptions(ORDERS, method="post", arguments=SCHEMA, query=("tag",), result={"type": "object"})
    document, operation = endpoint_document(options), operation_of(options)
    assert places(operation) == {"order_id": ("path", True), "tag": ("query", False)}
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert (body["properties"], body["required"]) == ({"lines": {"$ref": "#/$defs/Lines"}}, ["lines"])
    assert body["additionalProperties"] is False
    assert document["$defs"] == SCHEMA["$defs"]
    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == {"type": "object"}


def test_each_secret_is_a_security_scheme_of_its_header() -> None:
    options = EndpointOptions(ORDERS, secret_headers=("authorization", "x-api-key"))
    document = endpoint_document(options)
    assert document["components"]["securitySchemes"] == {
        "authorization": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    assert operation_of(options)["security"] == [{"authorization": [], "x-api-key": []}]


@pytest.mark.parametrize(
    "options",
    [
        EndpointOptions("ftp://api.example.com/orders"),
        EndpointOptions("https://api.example.com/orders?tag=a"),
        EndpointOptions(ORDERS, method="trace"),
    ],
)
def test_what_is_no_endpoint_is_refused(options: EndpointOptions) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        endpoint_document(options)
