"""Converts the parameters of the methods in `reading_methods.py` to requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1.audit_record_pb2 import AuthorizationOutcome, RecordStatus
from toolmesh.audit.v1.audit_service_pb2 import GetRecordRequest, QueryRecordsRequest, RecordFilter
from toolmesh.audit.v1.usage_service_pb2 import (
    GetUsageRequest,
    ListTopUsageRequest,
    UsageFilter,
    UsageGroup,
    UsageOrder,
)
from toolmesh.authz.v1.capability_token_pb2 import Budget, ToolGrant
from toolmesh.authz.v1.token_service_pb2 import DelegateTokenRequest, NarrowTokenRequest, Part
from toolmesh.registry.v1 import discovery_service_pb2 as discovery
from toolmesh.registry.v1.tool_manifest_pb2 import MUTATION_CLASS_READ_ONLY

from libs.common.errors import Violation
from services.gateway.domain.errors import wrong_params

Params = Mapping[str, Any]


def search_request(params: Params) -> discovery.SearchToolsRequest:
    """Build the request of a search. It finds only what the caller's token allows."""
    lexical = params.get("keywords_only", False)
    return discovery.SearchToolsRequest(
        query=params.get("query", ""),
        capabilities=params.get("capabilities", ()),
        filter=_filter(params),
        max_results=int(params.get("max_results", 0)),
        mode=discovery.SEARCH_MODE_LEXICAL if lexical else discovery.SEARCH_MODE_HYBRID,
    )


def surface_request(params: Params) -> discovery.CompileSurfaceRequest:
    """Build the request of a surface."""
    return discovery.CompileSurfaceRequest(
        task=params.get("task", ""),
        capabilities=params.get("capabilities", ()),
        token_budget=int(params["token_budget"]),
        tokenizer=params.get("tokenizer", ""),
        filter=_filter(params),
        context=discovery.SurfaceContext(model=params.get("model", "")),
        scope=params.get("scope", ""),
    )


def schemas_request(params: Params) -> discovery.GetToolSchemasRequest:
    """Build the request for schemas."""
    detail = params.get("detail", False)
    return discovery.GetToolSchemasRequest(
        tools=params["tools"],
        tier=discovery.SURFACE_TIER_DETAIL if detail else discovery.SURFACE_TIER_SCHEMA,
        tokenizer=params.get("tokenizer", ""),
    )


def delegate_request(params: Params) -> DelegateTokenRequest:
    """Build the request for an agent's token."""
    depth = params.get("delegation_depth")
    return DelegateTokenRequest(
        agent=params["agent"],
        part=_part(params, params.get("tools", ())),
        delegation_depth=None if depth is None else int(depth),
    )


def narrow_request(params: Params) -> NarrowTokenRequest:
    """Build the request for a token of one tool."""
    return NarrowTokenRequest(part=_part(params, (params["tool"],)))


def record_request(params: Params) -> GetRecordRequest:
    """Build the request for one record."""
    return GetRecordRequest(name=params["name"])


def query_request(params: Params) -> QueryRecordsRequest:
    """Build the request for a page of records."""
    outcome = f"AUTHORIZATION_OUTCOME_{params.get('authorization', 'unspecified').upper()}"
    status = f"RECORD_STATUS_{params.get('status', 'unspecified').upper()}"
    return QueryRecordsRequest(
        filter=RecordFilter(
            from_time=_time(params, "from_time"),
            to_time=_time(params, "to_time"),
            subject=params.get("subject", ""),
            tool_prefix=params.get("tool_prefix", ""),
            trace_id=params.get("trace_id", ""),
            invocation_id=params.get("invocation_id", ""),
            ticket=params.get("ticket", ""),
            authorization=AuthorizationOutcome.Value(outcome),
            status=RecordStatus.Value(status),
        ),
        page_size=int(params.get("page_size", 0)),
        page_token=params.get("page_token", ""),
        ascending=params.get("ascending", False),
    )


def usage_request(params: Params) -> GetUsageRequest:
    """Build the request for usage."""
    return GetUsageRequest(filter=_usage_filter(params))


def top_request(params: Params) -> ListTopUsageRequest:
    """Build the request for a page of a ranking."""
    return ListTopUsageRequest(
        group=UsageGroup.Value(f"USAGE_GROUP_{params['group'].upper()}"),
        order=UsageOrder.Value(f"USAGE_ORDER_{params.get('order', 'calls').upper()}"),
        filter=_usage_filter(params),
        page_size=int(params.get("page_size", 0)),
        page_token=params.get("page_token", ""),
    )


def _filter(params: Params) -> discovery.SearchFilter:
    return discovery.SearchFilter(
        min_trust=params.get("min_trust", 0.0),
        mutation_classes=[MUTATION_CLASS_READ_ONLY] if params.get("read_only", False) else [],
        namespaces=params.get("namespaces", ()),
        tags=params.get("tags", ()),
        version_constraint=params.get("version", ""),
    )


def _part(params: Params, tools: Any) -> Part:
    split = (tool.partition("@") for tool in tools)
    return Part(
        tools=[ToolGrant(tool=tool, version_constraint=version) for tool, _, version in split],
        scopes=params.get("scopes", ()),
        resource_constraints=params.get("resources", ()),
        budget=Budget(calls=int(params["calls"])) if "calls" in params else None,
        lifetime=_duration(int(params["ttl_ms"])) if "ttl_ms" in params else None,
        session_id=params.get("session_id", ""),
    )


def _duration(milliseconds: int) -> Duration:
    return Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def _usage_filter(params: Params) -> UsageFilter:
    return UsageFilter(
        tool=params.get("tool", ""),
        version=params.get("version", ""),
        subject=params.get("subject", ""),
        task_id=params.get("task_id", ""),
        from_time=_time(params, "from_time"),
        to_time=_time(params, "to_time"),
    )


def _time(params: Params, name: str) -> Timestamp | None:
    """Return a time parameter. Raises INVALID_PARAMS unless it is RFC 3339."""
    if name not in params:
        return None
    time = Timestamp()
    try:
        time.FromJsonString(params[name])
    except ValueError:
        raise wrong_params([Violation(f"/{name}", "format", "must be a time such as 2026-01-31T12:00:00Z")]) from None
    return time
