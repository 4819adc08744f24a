"""The calls that the suites make: the same echo as a gRPC message and as a JSON-RPC entry, and other tools the same
two ways."""

from __future__ import annotations

import json
from typing import Any

from toolmesh.authz.v1 import authz_service_pb2 as authz
from toolmesh.executor.v1 import executor_service_pb2 as pb

from bench.load.generator import Body

TEXT = {"text": "hello"}
# As near to 64 KB as the echo takes.
LARGE = {"text": "x" * 65_000}


def message(tool: str, arguments: dict[str, Any], key: str = "", weight: int = 1) -> Body:
    """Return a call as a gRPC message."""
    request = pb.InvokeRequest(tool=tool, arguments=json.dumps(arguments).encode(), idempotency_key=key)
    return Body(request.SerializeToString(), weight)


def check(*tags: str) -> Body:
    """Return a question to policy about the echo, as the executor asks it, with these tags of its tool."""
    facts = authz.CallFacts(
        tool_version="tools/core.echo/versions/1.0.0",
        tool_digest="sha256:" + "d" * 64,
        mutation_class="read_only",
        required_scopes=["tools:call"],
        tags=tags,
        arguments_digest="sha256:" + "a" * 64,
        arguments=b'{"text":"hello"}',
        session_id="bench",
        invocation_id="01932f3a-7c1e-7000-8000-0000000004d2",
        closed_world=True,
        tool_trust=100,
    )
    return Body(authz.CheckRequest(call=facts).SerializeToString())


def entry(tool: str, arguments: dict[str, Any]) -> Body:
    """Return a call as a JSON-RPC entry."""
    params = {"tool": tool, "arguments": arguments}
    return Body(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": params}).encode())


MESSAGE, ENTRY = [message("echo", TEXT)], [entry("echo", TEXT)]
