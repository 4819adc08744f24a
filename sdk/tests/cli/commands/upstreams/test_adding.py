"""`toolmesh connect`: what every kind of server is added with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.registry.v1 import upstream_pb2 as upb
from toolmesh.registry.v1 import upstream_service_pb2 as pb
from toolmesh_sdk.cli.exits import USAGE

UPSTREAM = upb.Upstream(
    name="upstreams/shop",
    endpoint=upb.UpstreamEndpoint(grpc=upb.GrpcEndpoint(address="shop.example:443")),
    state=upb.UPSTREAM_STATE_READY,
    generation=1,
    observed_generation=1,
)


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    """A command for each kind."""
    operations = tmp_path / "feed.json"
    operations.write_text(json.dumps([{"name": "ask", "input": {"type": "object"}}]))
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"shop": {"url": "https://shop.example/mcp"}}}))
    return {
        "mcp": ["https://shop.example/mcp"],
        "file": [str(servers)],
        "openapi": ["https://shop.example/openapi.json"],
        "http": ["https://shop.example/orders"],
        "grpc": ["shop.example:443"],
        "websocket": ["wss://shop.example/v1", "--operations", str(operations)],
    }


@pytest.mark.parametrize("kind", ["mcp", "file", "openapi", "http", "grpc", "websocket"])
@pytest.mark.parametrize(("text", "milliseconds"), [("800ms", 800), ("2s", 2000), ("1m", 60_000), ("", None)])
def test_what_counts_as_slow_is_said_when_a_server_is_connected(
    toolmesh: Any, mesh: Any, commands: dict[str, list[str]], kind: str, text: str, milliseconds: int | None
) -> None:
    mesh.answer("AddUpstream", pb.AddUpstreamResponse(upstream=UPSTREAM))
    mesh.answer("GetUpstream", pb.GetUpstreamResponse(upstream=UPSTREAM))
    option = ["--slow-call-time", text] if text else []
    assert toolmesh("connect", kind, *commands[kind], *option).exit_code == 0
    [added] = mesh.of("AddUpstream")
    assert added.request.HasField("slow_call_time") is bool(text)
    assert added.request.slow_call_time.ToMilliseconds() == (milliseconds or 0)


@pytest.mark.parametrize("kind", ["mcp", "file", "grpc"])
@pytest.mark.parametrize("text", ["", "2", "0s", "-1s", "1.5s", "2h", "61m", "soon"])
def test_what_is_no_short_time_is_wrong_usage(
    toolmesh: Any, mesh: Any, commands: dict[str, list[str]], kind: str, text: str
) -> None:
    assert toolmesh("connect", kind, *commands[kind], "--slow-call-time", text).exit_code == USAGE
    assert not mesh.of("AddUpstream")
