"""Builds the requests of both clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh.registry.v1 import registry_service_pb2

from toolmesh_sdk._wire.payload import encode_arguments
from toolmesh_sdk._wire.times import to_timestamp


def invoke(
    tool: str,
    arguments: Mapping[str, Any] | None,
    version: str,
    idempotency_key: str | None,
    session_id: str,
    task_id: str,
    native_call_id: str,
    tool_digest: str = "",
    *,
    priority: int = 0,
    preview_token: str = "",
    ticket: str = "",
) -> executor_service_pb2.InvokeRequest:
    """Build the request of one call."""
    return executor_service_pb2.InvokeRequest(
        tool=tool,
        version=version,
        arguments=encode_arguments(arguments),
        idempotency_key=idempotency_key or "",
        session_id=session_id,
        task_id=task_id,
        native_call_id=native_call_id,
        tool_digest=tool_digest,
        priority=priority,
        preview_token=preview_token,
        ticket=ticket,
    )


def list_tools(
    namespace: str, tags: Iterable[str], page_size: int, usable_only: bool
) -> registry_service_pb2.ListToolsRequest:
    """Build the request for the first page of tools."""
    return registry_service_pb2.ListToolsRequest(
        namespace=namespace, tags=list(tags), page_size=page_size, usable_only=usable_only
    )


class RecordFilters(TypedDict, total=False):
    """Filters of audit records; omitted filters match everything.

    `tool` is a reference such as `echo`, `acme.send_email` or `arith*`, or a prefix of a resource name. `authorization`
    is ALLOW, DENY or REQUIRES_APPROVAL; `status` is SUCCESS, ERROR or TIMEOUT. Times are aware. `resource` is the
    resource of an administrative act, or the beginning of its name.
    """

    tool: str
    trace_id: str
    invocation_id: str
    subject: str
    ticket: str
    authorization: str
    status: str
    from_time: datetime
    to_time: datetime
    resource: str
    acts_only: bool


def record_filter(filters: RecordFilters) -> audit_service_pb2.RecordFilter:
    """Build the filter message. Raises ValueError for an unknown `authorization` or `status`."""
    return audit_service_pb2.RecordFilter(
        from_time=to_timestamp(filters.get("from_time")),
        to_time=to_timestamp(filters.get("to_time")),
        subject=filters.get("subject", ""),
        tool_prefix=tool_prefix(filters.get("tool", "")),
        trace_id=filters.get("trace_id", ""),
        invocation_id=filters.get("invocation_id", ""),
        ticket=filters.get("ticket", ""),
        authorization=_enum_number(pb.AuthorizationOutcome, "AUTHORIZATION_OUTCOME_", filters.get("authorization", "")),
        status=_enum_number(pb.RecordStatus, "RECORD_STATUS_", filters.get("status", "")),
        resource_prefix=filters.get("resource", ""),
        acts_only=filters.get("acts_only", False),
    )


def query_records(filters: RecordFilters, page_size: int, *, ascending: bool) -> audit_service_pb2.QueryRecordsRequest:
    """Build the request for the first page of records."""
    return audit_service_pb2.QueryRecordsRequest(
        filter=record_filter(filters), page_size=page_size, ascending=ascending
    )


def watch_records(filters: RecordFilters, from_sequence: int) -> audit_service_pb2.WatchRecordsRequest:
    """Build the request of a watch."""
    return audit_service_pb2.WatchRecordsRequest(filter=record_filter(filters), from_sequence=from_sequence)


def qualified_name(reference: str) -> str:
    """Return the name with its namespace: `core.echo` for `echo`."""
    return reference if not reference or "." in reference else f"core.{reference}"


def tool_prefix(reference: str) -> str:
    """Return the prefix of version names: `tools/core.echo/` for `echo`, `tools/core.arith` for `arith*`."""
    if not reference or reference.startswith("tools/"):
        return reference
    qualified = qualified_name(reference)
    return "tools/" + (qualified.partition("*")[0] if "*" in qualified else qualified + "/")


def _enum_number(enum: Any, prefix: str, label: str) -> Any:
    return enum.Value(prefix + label.upper()) if label else 0
