"""Endpoints of upstreams as messages and back."""

from __future__ import annotations

from toolmesh.registry.v1 import upstream_pb2

from services.registry.convert.upstream_endpoints import websocket, websocket_of
from services.registry.domain.upstreams.upstream import MetadataSecret, WebSocketEndpoint, WebSocketOperation


def test_a_websocket_service_survives_both_ways() -> None:
    operation = WebSocketOperation(
        "ask", '{"type":"object"}', "Asks.", "{}", '{"a":1}', "params", "id", "error", True, '{"end":true}', True
    )
    endpoint = WebSocketEndpoint(
        "wss://feed.example.com", (operation,), (MetadataSecret("x-key", "secret://key", "Key "),), ("graphql",)
    )
    assert websocket_of(websocket(endpoint)) == endpoint


def test_bytes_that_are_no_text_are_no_json() -> None:
    operation = upstream_pb2.WebSocketOperation(name="ask", input_schema=b"\xff")
    message = upstream_pb2.WebSocketEndpoint(url="wss://a", operations=[operation])
    assert websocket_of(message).operations[0].input_schema == "\ufffd"
