"""The methods that find tools, derive tokens and read records and usage: each request as its peer receives it."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, usage_service_pb2
from toolmesh.authz.v1 import token_service_pb2
from toolmesh.registry.v1 import discovery_service_pb2, tool_manifest_pb2

from libs.common.errors import Reason

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILTER = {"namespaces": ["acme"], "tags": ["t"], "min_trust": 0.5, "read_only": True}
SEARCH_FILTER = discovery_service_pb2.SearchFilter(
    min_trust=0.5, mutation_classes=[tool_manifest_pb2.MUTATION_CLASS_READ_ONLY], namespaces=["acme"], tags=["t"]
)
SCOPES = "tools:read audit:read"
USAGE = {"tool": "echo", "from_time": "1970-01-01T00:00:01Z"}


async def request_of(mesh: Any, method: str, params: dict[str, Any]) -> Any:
    response = await mesh.client(token=mesh.signer.mint(scope=SCOPES)).call(method, params)
    assert "result" in response.json(), response.text
    return mesh.peers.reads[-1]


async def test_search_surface_and_schemas(mesh: Any) -> None:
    asked = await request_of(
        mesh, "tools.search", {"query": "pay", "max_results": 3, "keywords_only": True, "capabilities": ["c"], **FILTER}
    )
    assert asked == discovery_service_pb2.SearchToolsRequest(
        query="pay",
        capabilities=["c"],
        max_results=3,
        mode=discovery_service_pb2.SEARCH_MODE_LEXICAL,
        filter=SEARCH_FILTER,
    )
    asked = await request_of(mesh, "tools.surface", {"task": "pay", "token_budget": 50.0, "model": "m", **FILTER})
    context = discovery_service_pb2.SurfaceContext(model="m")
    assert asked == discovery_service_pb2.CompileSurfaceRequest(
        task="pay", token_budget=50, context=context, filter=SEARCH_FILTER
    )
    asked = await request_of(mesh, "tools.schemas", {"tools": ["echo"], "detail": True})
    assert (list(asked.tools), asked.tier) == (["echo"], discovery_service_pb2.SURFACE_TIER_DETAIL)


async def test_tokens_are_derived_with_their_bounds(mesh: Any) -> None:
    bounds = {"scopes": ["tools:call"], "calls": 2, "ttl_ms": 1500, "session_id": "s", "resources": ["file:/a"]}
    asked = await request_of(
        mesh, "tokens.delegate", {"agent": "did:web:a", "tools": ["echo@^1"], "delegation_depth": 0, **bounds}
    )
    part = token_service_pb2.Part(scopes=["tools:call"], session_id="s", resource_constraints=["file:/a"])
    part.tools.add(tool="echo", version_constraint="^1")
    part.budget.calls = 2
    part.lifetime.FromMilliseconds(1500)
    assert asked == token_service_pb2.DelegateTokenRequest(agent="did:web:a", part=part, delegation_depth=0)
    asked = await request_of(mesh, "tokens.narrow", {"tool": "echo@^1", **bounds})
    assert asked == token_service_pb2.NarrowTokenRequest(part=part)


async def test_records_and_usage_are_read(mesh: Any) -> None:
    asked = await request_of(mesh, "audit.get", {"name": "logs/main/records/7"})
    assert asked == audit_service_pb2.GetRecordRequest(name="logs/main/records/7")
    filters = {"subject": "s", "tool_prefix": "tools/core.echo/", "status": "error", "authorization": "deny"}
    asked = await request_of(mesh, "audit.query", {**filters, "page_size": 5, "ascending": True})
    assert asked == audit_service_pb2.QueryRecordsRequest(
        filter=audit_service_pb2.RecordFilter(
            subject="s",
            tool_prefix="tools/core.echo/",
            status=audit_record_pb2.RECORD_STATUS_ERROR,
            authorization=audit_record_pb2.AUTHORIZATION_OUTCOME_DENY,
        ),
        page_size=5,
        ascending=True,
    )
    counted = usage_service_pb2.UsageFilter(tool="echo")
    counted.from_time.seconds = 1
    assert await request_of(mesh, "usage.get", USAGE) == usage_service_pb2.GetUsageRequest(filter=counted)
    asked = await request_of(mesh, "usage.top", {"group": "task", "order": "cost", **USAGE})
    assert (asked.group, asked.order, asked.filter) == (
        usage_service_pb2.USAGE_GROUP_TASK,
        usage_service_pb2.USAGE_ORDER_COST,
        counted,
    )


@pytest.mark.parametrize("time", ["yesterday", "", "2026-13-01T00:00:00Z", "1e20"])
async def test_a_time_that_is_none_is_a_violation(mesh: Any, time: str) -> None:
    response = await mesh.client(token=mesh.signer.mint(scope=SCOPES)).call("usage.get", {"from_time": time})
    error = response.json()["error"]["data"]
    assert (error["reason"], error["violations"][0]["path"]) == (Reason.INVALID_PARAMS.name, "/from_time")
    assert mesh.peers.reads == []
