"""Requests that are cheap to send and expensive to serve, each as one step that an attacker repeats.

Every attack uses an ordinary token of its own tenant. A refusal is fine; what counts is the cost for other tenants.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc
import httpx
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import capability_token_pb2 as tokens
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2_grpc as token_rpc
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as executor_rpc
from toolmesh.registry.v1 import discovery_service_pb2 as discovery_pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc

AGENT = "did:web:toolmesh.local:agents:mallory"
WATCHES = 300
ENTRIES, CALLS = 50, 64
PATIENCE = 20.0


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with this token."""
    return (("authorization", f"Bearer {token}"),)


@dataclass
class Attacker:
    """A caller with an ordinary token, connected to the edge."""

    channel: grpc.Channel
    url: str
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return bearer(self.token)

    def delegate(self, **part: Any) -> str:
        """Ask authz for a derived token; empty if it is refused."""
        request = token_pb.DelegateTokenRequest(agent=AGENT, part=token_pb.Part(**part))
        with suppress(grpc.RpcError):
            stub = token_rpc.TokenServiceStub(self.channel)
            return str(stub.DelegateToken(request, metadata=self.metadata, timeout=PATIENCE).token)
        return ""

    def invoke(self, arguments: Any, token: str = "", **fields: Any) -> None:
        """Call echo and ignore the outcome."""
        metadata = bearer(token) if token else self.metadata
        encoded = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
        request = executor_pb.InvokeRequest(tool="echo", arguments=encoded, **fields)
        with suppress(grpc.RpcError):
            executor_rpc.ExecutorServiceStub(self.channel).Invoke(request, metadata=metadata, timeout=PATIENCE)


def _constrained(attacker: Attacker, schema: dict[str, Any]) -> None:
    constraint = tokens.ArgumentConstraint(tool="echo", schema=json.dumps(schema).encode())
    derived = attacker.delegate(tools=[tokens.ToolGrant(tool="echo")], argument_constraints=[constraint])
    if derived:
        attacker.invoke({"text": "a" * 5000}, derived)


def doubling_references(attacker: Attacker) -> None:
    """A token whose argument schema doubles its work with each of 40 references."""
    doubled = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    _constrained(attacker, {"$ref": "#/$defs/a0", "$defs": {**doubled, "a40": {"type": "object"}}})


def backtracking_pattern(attacker: Attacker) -> None:
    """A token whose argument schema has a pattern that backtracks without end."""
    _constrained(attacker, {"properties": {"text": {"pattern": "^(?=(a+)+$)(a+)+b$"}}})


def quadratic_globs(attacker: Attacker) -> None:
    """A delegation of many long patterns, each compared with each of the parent's."""
    grants = [tokens.ToolGrant(tool="*a" * 60 + str(n)) for n in range(64)]
    attacker.delegate(tools=grants)


def watch_streams(attacker: Attacker) -> None:
    """Hundreds of open watches of the log."""
    stub = audit_rpc.AuditServiceStub(attacker.channel)
    request = audit_pb.WatchRecordsRequest(from_sequence=-1)
    streams = [stub.WatchRecords(request, metadata=attacker.metadata, timeout=5) for _ in range(WATCHES)]
    for stream in streams:
        with suppress(grpc.RpcError):
            for _ in stream:
                pass


def wide_doubles(attacker: Attacker) -> None:
    """Numbers that are whole doubles past 64 bits."""
    attacker.invoke({"text": "n", "value": 1e20})
    attacker.invoke({"text": "n", "value": [2.0**64, 1e21, -1e20]})


def amplified_batches(attacker: Attacker) -> None:
    """One POST that asks for thousands of executions."""
    headers = {"authorization": f"Bearer {attacker.token}", "content-type": "application/json"}
    with suppress(httpx.HTTPError):
        httpx.post(f"{attacker.url}/rpc", content=_amplified_batch(), headers=headers, timeout=PATIENCE)


# Encoded once: the attacker shares its interpreter with the victim, whose latency must not be that of the encoder.
@cache
def _amplified_batch() -> bytes:
    call = {"tool": "echo", "arguments": {"text": "x"}}
    group = {"method": "tools.invoke_group", "params": {"calls": [call] * CALLS}}
    return json.dumps([{"jsonrpc": "2.0", "id": n, **group} for n in range(ENTRIES)]).encode()


def highest_priority(attacker: Attacker) -> None:
    """Calls that ask for the highest priority."""
    attacker.invoke({"text": "x" * 60_000}, priority=10)


def large_arguments(attacker: Attacker) -> None:
    """Arguments of many small values."""
    attacker.invoke(_large_arguments())


@cache
def _large_arguments() -> bytes:
    return json.dumps({"text": "n", "value": [[0]] * 200_000}).encode()


def wrong_content_type(attacker: Attacker) -> None:
    """A gRPC path with another content type, which must not count against the service behind it."""
    headers = {"authorization": f"Bearer {attacker.token}", "content-type": "text/plain"}
    with suppress(httpx.HTTPError):
        url = f"{attacker.url}/toolmesh.executor.v1.ExecutorService/Invoke"
        httpx.post(url, content=b"x", headers=headers, timeout=PATIENCE)


def long_searches(attacker: Attacker) -> None:
    """Searches with long queries that no cache knows."""
    query = " ".join(f"word{n}" for n in range(200))
    request = discovery_pb.SearchToolsRequest(query=query[:1000])
    with suppress(grpc.RpcError):
        stub = discovery_rpc.DiscoveryServiceStub(attacker.channel)
        stub.SearchTools(request, metadata=attacker.metadata, timeout=PATIENCE)


ATTACKS: list[Callable[[Attacker], None]] = [
    doubling_references,
    backtracking_pattern,
    quadratic_globs,
    watch_streams,
    wide_doubles,
    amplified_batches,
    highest_priority,
    large_arguments,
    wrong_content_type,
    long_searches,
]
