"""The requests of both clients, built in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh.registry.v1 import registry_service_pb2

from toolmesh_sdk._wire.payload import encode_arguments


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
) -> executor_service_pb2.InvokeRequest:
    """Ask for one call."""
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
    )


def list_tools(
    namespace: str, tags: Iterable[str], page_size: int, usable_only: bool
) -> registry_service_pb2.ListToolsRequest:
    """Ask for the first page of tools."""
    return registry_service_pb2.ListToolsRequest(
        namespace=namespace, tags=list(tags), page_size=page_size, usable_only=usable_only
    )


class RecordFilters(TypedDict, total=False):
    """Which audit records are wanted; what is left out does not narrow.

    `tool` is a reference such as `echo`, `acme.send_email` or `arith*`, or the beginning of a resource name. `authorization`
    is ALLOW, DENY or REQUIRES_APPROVAL; `status` is SUCCESS, ERROR or TIMEOUT. Times are aware.
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


def record_filter(filters: RecordFilters) -> audit_service_pb2.RecordFilter:
    """Return the message. Raises ValueError for a word that the contract does not know."""
    return audit_service_pb2.RecordFilter(
        from_time=_stamp(filters.get("from_time")),
        to_time=_stamp(filters.get("to_time")),
        subject=filters.get("subject", ""),
        tool_prefix=tool_prefix(filters.get("tool", "")),
        trace_id=filters.get("trace_id", ""),
        invocation_id=filters.get("invocation_id", ""),
        ticket=filters.get("ticket", ""),
        authorization=_number(pb.AuthorizationOutcome, "AUTHORIZATION_OUTCOME_", filters.get("authorization", "")),
        status=_number(pb.RecordStatus, "RECORD_STATUS_", filters.get("status", "")),
    )


def query_records(filters: RecordFilters, page_size: int, *, ascending: bool) -> audit_service_pb2.QueryRecordsRequest:
    """Ask for the first page of records."""
    return audit_service_pb2.QueryRecordsRequest(
        filter=record_filter(filters), page_size=page_size, ascending=ascending
    )


def watch_records(filters: RecordFilters, from_sequence: int) -> audit_service_pb2.WatchRecordsRequest:
    """Open a watch."""
    return audit_service_pb2.WatchRecordsRequest(filter=record_filter(filters), from_sequence=from_sequence)


def tool_prefix(reference: str) -> str:
    """Return how the names of a reference's versions begin: `echo` is `tools/core.echo/`, `arith*` is `tools/core.arith`."""
    if not reference or reference.startswith("tools/"):
        return reference
    qualified = reference if "." in reference else f"core.{reference}"
    return "tools/" + (qualified.partition("*")[0] if "*" in qualified else qualified + "/")


def _stamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _number(enum: Any, prefix: str, word: str) -> Any:
    return enum.Value(prefix + word.upper()) if word else 0
