"""The same echo as a call of MCP, in either generation of the protocol."""

from __future__ import annotations

import json
from typing import Any

from bench.load.calls import TEXT
from bench.load.generator import Body

STATELESS = "2026-07-28"
_META = "io.modelcontextprotocol/"


def mcp_call(generation: str, name: str = "echo") -> tuple[dict[str, str], list[Body]]:
    """Return the headers and the body of a call."""
    params: dict[str, Any] = {"name": name, "arguments": TEXT}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers["mcp-protocol-version"] = generation
    if generation >= "2026":
        headers |= {"mcp-method": "tools/call", "mcp-name": name}
        about = {
            "protocolVersion": generation,
            "clientInfo": {"name": "bench", "version": "1"},
            "clientCapabilities": {},
        }
        params["_meta"] = {_META + name: value for name, value in about.items()}
    return headers, [call_body(params)]


def call_body(params: dict[str, Any]) -> Body:
    """Return the body of `tools/call`."""
    return Body(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
