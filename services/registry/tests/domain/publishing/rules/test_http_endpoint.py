"""Admission of HTTP endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import http_endpoint_pb2 as hpb
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump
from services.registry.convert.manifest import manifest_of, message_of
from services.registry.domain.publishing.rules.honoured import refuse_unhonoured
from services.registry.domain.publishing.rules.http_endpoint import check_http_endpoint
from services.registry.tests.manifests import reader

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "tags": {"type": "array"}, "lang": {"type": "string"}},
    "required": ["id"],
}


def http_tool() -> pb.ToolManifest:
    """A read-only endpoint that is admissible."""
    message = reader()
    message.input.schema = dump(SCHEMA)
    del message.input.examples[:]
    message.execution.runner = pb.RUNNER_KIND_HTTP
    message.execution.access_tier = pb.ACCESS_TIER_NETWORK
    message.execution.network_policy.allowed_domains.append("api.example.com")
    endpoint = message.execution.http
    endpoint.method, endpoint.url = hpb.HTTP_METHOD_GET, "https://api.example.com/orders/{id}"
    endpoint.parameters.add(argument="tags", place=hpb.HTTP_PLACE_QUERY)
    endpoint.parameters.add(argument="lang", place=hpb.HTTP_PLACE_HEADER, name="Accept-Language")
    endpoint.secrets.add(
        secret="secret://crm_key",
        place=hpb.HTTP_PLACE_HEADER,
        name="Authorization",
        prefix="Bearer ",
    )
    message.execution.retry_policy.max_attempts = 2
    message.execution.circuit_breaker.failure_rate = 30
    message.execution.retry_policy.backoff_max.CopyFrom(Duration(seconds=1))
    return message


def rules(message: pb.ToolManifest) -> set[str]:
    return {violation.rule for violation in check_http_endpoint(manifest_of(message))}


def test_a_whole_endpoint_is_admitted_and_its_document_is_the_message() -> None:
    message = http_tool()
    manifest = manifest_of(message)
    assert not [*check_http_endpoint(manifest)]
    assert not [*refuse_unhonoured(manifest)]
    assert message_of(manifest) == message


@pytest.mark.parametrize(
    ("alter", "rule"),
    [
        (lambda m: m.execution.ClearField("http"), "http.required"),
        (lambda m: setattr(m.execution.http, "url", "https://api.example.com/{id}?q={x}"), "http.url"),
        (lambda m: setattr(m.execution, "access_tier", pb.ACCESS_TIER_FILES), "http.access"),
        (lambda m: setattr(m.execution.network_policy, "deny_all_egress", True), "http.access"),
        (lambda m: m.execution.network_policy.ClearField("allowed_domains"), "http.host"),
        (lambda m: m.execution.network_policy.allowed_ports.append(8443), "http.port"),
        (lambda m: setattr(m.execution, "entry_point", "x"), "entry_point.form"),
        (lambda m: setattr(m.execution.checkpoint, "enabled", True), "http.checkpoint"),
        (lambda m: setattr(m.execution.http, "method", hpb.HTTP_METHOD_DELETE), "http.method"),
        (lambda m: setattr(m.execution.http, "body_argument", "lang"), "http.body"),
        (lambda m: setattr(m.execution.http, "url", "https://api.example.com/{other}"), "http.placeholder"),
        (lambda m: setattr(m.execution.http, "url", "https://api.example.com/{id}/{lang}"), "http.placeholder"),
        (lambda m: setattr(m.execution.http.parameters[0], "argument", "other"), "http.argument"),
        (lambda m: setattr(m.execution.http.parameters[0], "argument", "id"), "http.argument_twice"),
        (lambda m: m.execution.http.parameters.pop(), "http.argument_unplaced"),
        (lambda m: setattr(m.execution.http.parameters[1], "name", "Content-Length"), "http.header"),
        (lambda m: setattr(m.execution.http.parameters[1], "name", "Cookie"), "http.header"),
        (lambda m: setattr(m.execution.http.parameters[1], "name", "a b"), "http.header"),
        (lambda m: setattr(m.execution.http.secrets[0], "name", "Transfer-Encoding"), "http.header"),
        (lambda m: setattr(m.execution.http, "idempotency_header", "Accept-Language"), "http.header"),
        (lambda m: m.execution.http.failover_origins.append("https://eu.example.com"), "http.host"),
        (lambda m: m.execution.http.failover_origins.append("https://api.example.com:99"), "http.port"),
        (lambda m: m.execution.http.failover_origins.append("https://api.example.com"), "http.failover"),
        (lambda m: m.execution.http.failover_origins.append("http://api.example.com"), "http.failover"),
        (lambda m: m.execution.http.failover_origins.append("https://api.example.com:70000"), "http.url"),
    ],
)
def test_each_mistake_has_its_rule(alter: Callable[[pb.ToolManifest], Any], rule: str) -> None:
    message = http_tool()
    alter(message)
    assert rule in rules(message)


def test_another_runner_has_no_endpoint_no_retries_and_no_circuit() -> None:
    message = http_tool()
    message.execution.runner = pb.RUNNER_KIND_PYTHON
    paths = {violation.path for violation in check_http_endpoint(manifest_of(message))}
    assert paths == {f"manifest.execution.{field}" for field in ("http", "retry_policy", "circuit_breaker")}


@pytest.mark.parametrize("runner", [pb.RUNNER_KIND_MCP, pb.RUNNER_KIND_GRPC, pb.RUNNER_KIND_WEBSOCKET])
def test_a_tool_of_an_upstream_has_a_circuit_and_nothing_else_of_an_endpoint(runner: pb.RunnerKind.ValueType) -> None:
    message = http_tool()
    message.execution.runner = runner
    paths = {violation.path for violation in check_http_endpoint(manifest_of(message))}
    assert paths == {f"manifest.execution.{field}" for field in ("http", "retry_policy")}


def test_a_wildcard_covers_the_host_one_level_below() -> None:
    message = http_tool()
    del message.execution.network_policy.allowed_domains[:]
    message.execution.network_policy.allowed_domains.append("*.example.com")
    assert rules(message) == set()
