"""The surface of both clients: what they ask and what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2
from toolmesh.authz.v1 import token_service_pb2
from toolmesh.executor.v1 import executor_service_pb2, result_envelope_pb2
from toolmesh.registry.v1 import registry_service_pb2, tool_pb2, tool_version_pb2
from toolmesh_sdk import AsyncClient, Client, InvalidInputError

RESULT = result_envelope_pb2.ResultEnvelope(
    result_id="res-1",
    invocation_id="inv-1",
    status=result_envelope_pb2.RESULT_STATUS_SUCCEEDED,
    structured_content=b'{"sum": 18446744073709551615}',
    provenance=result_envelope_pb2.Provenance(tool_version="tools/core.arith/versions/1.0.0", tool_digest="sha256:00"),
    execution=result_envelope_pb2.ExecutionMetadata(
        total=Duration(nanos=1_500_000),
        phases=[result_envelope_pb2.PhaseDuration(phase="execute", duration=Duration(nanos=250_000))],
        attempts=1,
    ),
    replayed=True,
    adjusted_arguments=["/mode"],
    adjusted_result=["/card"],
    deprecation=result_envelope_pb2.DeprecationNotice(
        sunset_time=Timestamp(seconds=1_800_000_000), successor="tools/core.arith/versions/2.0.0"
    ),
    evidence_refs=["logs/main/records/7"],
    trace_id="t" * 32,
)


def test_both_clients_have_the_same_surface() -> None:
    def surface(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(member).parameters.values()]
            for name, member in vars(kind).items()
            if not name.startswith("_") and callable(member)
        }

    assert surface(Client) == surface(AsyncClient)
    assert "call" in surface(Client)


async def test_a_call_asks_for_everything_it_was_given(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", executor_service_pb2.InvokeResponse())
    named = {
        "version": "^1.2",
        "idempotency_key": "k",
        "session_id": "s",
        "task_id": "t",
        "native_call_id": "call_1",
    }
    await drive(serve()).do("call", "acme.send", {"to": "ü", "n": 2**64 - 1}, **named)
    assert mesh.seen[0].request == executor_service_pb2.InvokeRequest(
        tool="acme.send", arguments='{"to":"ü","n":18446744073709551615}'.encode(), **named
    )


async def test_a_result_is_read_whole(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", executor_service_pb2.InvokeResponse(result=RESULT))
    result = await drive(serve()).do("call", "arith")
    assert result.content == {"sum": 2**64 - 1}
    assert result.raw == RESULT.structured_content
    assert (result.invocation_id, result.result_id, result.status) == ("inv-1", "res-1", "succeeded")
    assert (result.tool_version, result.digest) == ("tools/core.arith/versions/1.0.0", "sha256:00")
    assert (result.replayed, result.trace_id, result.duration) == (True, "t" * 32, 0.0015)
    assert (result.phases, result.attempts) == ({"execute": 0.00025}, 1)
    assert (result.adjusted_arguments, result.evidence_refs) == (("/mode",), ("logs/main/records/7",))
    assert result.adjusted_result == ("/card",)
    assert result.deprecation.sunset_time == datetime.fromtimestamp(1_800_000_000, UTC)
    assert result.deprecation.successor == "tools/core.arith/versions/2.0.0"
    assert result.envelope == RESULT


async def test_arguments_that_are_no_json_are_not_sent(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    with pytest.raises(InvalidInputError):
        await drive(serve()).do("call", "echo", {"x": float("nan")})
    assert mesh.seen == []


async def test_all_pages_of_tools_are_read(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer(
        "ListTools",
        registry_service_pb2.ListToolsResponse(tools=[_listed("a"), _listed("b")], next_page_token="p2"),
        registry_service_pb2.ListToolsResponse(tools=[], next_page_token="p3"),
        registry_service_pb2.ListToolsResponse(tools=[_listed("c")]),
    )
    found = await drive(serve()).take("list_tools", namespace="core", tags=["x"], page_size=2)
    assert [each.tool.name for each in found] == ["a", "b", "c"]
    asked = [
        (call.request.page_token, call.request.namespace, list(call.request.tags), call.request.page_size)
        for call in mesh.seen
    ]
    assert asked == [(token, "core", ["x"], 2) for token in ("", "p2", "p3")]


async def test_a_tool_is_read_and_resolved(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    version = tool_version_pb2.ToolVersion(name="tools/core.echo/versions/1.0.0", digest="sha256:1")
    mesh.answer("GetTool", registry_service_pb2.GetToolResponse(tool=tool_pb2.Tool(name="tools/core.echo")))
    mesh.answer("ResolveTool", registry_service_pb2.ResolveToolResponse(version=version))
    client = drive(serve())
    assert (await client.do("get_tool", "echo")).tool.name == "tools/core.echo"
    assert await client.do("resolve_tool", "echo", "^1") == version
    assert mesh.of("ResolveTool")[0].request.version_constraint == "^1"


async def test_authority_is_passed_on(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("DelegateToken", token_service_pb2.DelegateTokenResponse(token="child"))
    mesh.answer("NarrowToken", token_service_pb2.NarrowTokenResponse(token="call"))
    client = drive(serve(), token="mine")
    bounds = {"tools": ["echo@^1"], "arguments": {"echo": {"maxProperties": 1}}, "calls": 2, "ttl_seconds": 1.5}
    assert (await client.do("delegate", "did:web:x:bot", depth=0, **bounds)).token == "child"
    asked = mesh.of("DelegateToken")[0].request
    assert (asked.agent, asked.HasField("delegation_depth"), asked.part.budget.calls) == ("did:web:x:bot", True, 2)
    assert (asked.part.lifetime.ToMilliseconds(), asked.part.HasField("trust_level")) == (1500, False)
    assert [bytes(c.schema) for c in asked.part.argument_constraints] == [b'{"maxProperties":1}']
    assert (await client.do("narrow", "echo@1.0.0", proof="jkt:" + "a" * 43)).token == "call"
    part = mesh.of("NarrowToken")[0].request.part
    assert ([grant.tool for grant in part.tools], part.confirmation.jwk_thumbprint) == (["echo"], "a" * 43)


async def test_the_token_of_another_issuer_is_exchanged(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("ExchangeToken", token_service_pb2.ExchangeTokenResponse(token="mine"))
    client = drive(serve())
    bound = {"scopes": ["tools:call"], "ttl_seconds": 1.5, "proof": "jkt:" + "a" * 43}
    assert (await client.do("exchange", "a.b.c", **bound)).token == "mine"
    asked = mesh.of("ExchangeToken")[0].request
    assert (asked.subject_token, list(asked.scopes)) == ("a.b.c", ["tools:call"])
    assert (asked.lifetime.ToMilliseconds(), asked.confirmation.jwk_thumbprint) == (1500, "a" * 43)


async def test_records_are_queried_page_by_page(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer(
        "QueryRecords",
        audit_service_pb2.QueryRecordsResponse(records=[_record(9), _record(8)], next_page_token="more"),
        audit_service_pb2.QueryRecordsResponse(records=[_record(7)]),
    )
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    found = await drive(serve()).take(
        "query_records",
        tool="echo",
        status="error",
        authorization="DENY",
        subject="did:web:x",
        from_time=begin,
        to_time=begin + timedelta(days=1),
        ascending=True,
    )
    assert [each.sequence for each in found] == [9, 8, 7]
    request = mesh.seen[0].request
    assert (request.filter.tool_prefix, request.filter.subject, request.ascending) == (
        *("tools/core.echo/", "did:web:x"),
        True,
    )
    assert request.filter.status == audit_record_pb2.RECORD_STATUS_ERROR
    assert request.filter.authorization == audit_record_pb2.AUTHORIZATION_OUTCOME_DENY
    assert request.filter.to_time.seconds - request.filter.from_time.seconds == 86400


async def test_one_record_and_the_checkpoint_are_read(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    checkpoint = checkpoint_pb2.Checkpoint(log_id="main", tree_size=12, note="n")
    mesh.answer("GetRecord", audit_service_pb2.GetRecordResponse(record=_record(3)))
    mesh.answer("GetCheckpoint", audit_service_pb2.GetCheckpointResponse(checkpoint=checkpoint))
    client = drive(serve())
    assert (await client.do("get_record", "records/abc")).sequence == 3
    assert await client.do("checkpoint") == checkpoint


async def test_clients_are_context_managers(mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", executor_service_pb2.InvokeResponse())
    address = serve()
    with Client(address) as client:
        client.call("echo")
    async with AsyncClient(address) as other:
        await other.call("echo")
    assert len(mesh.seen) == 2


def _listed(name: str) -> registry_service_pb2.ListedTool:
    return registry_service_pb2.ListedTool(tool=tool_pb2.Tool(name=name))


def _record(sequence: int) -> audit_record_pb2.LoggedRecord:
    return audit_record_pb2.LoggedRecord(sequence=sequence)
